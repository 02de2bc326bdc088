"""One package for each framework; none knows another, and the rest of the library knows none."""
