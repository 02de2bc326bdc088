"""One module for each command, of its name; `main.py` puts them together."""
