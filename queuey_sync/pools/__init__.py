"""Where handlers run: `base` is the seam, `invoke` what every pool does with one attempt."""
