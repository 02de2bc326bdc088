"""One suite of what every backend must do; `adapters.py` is all that differs between them."""
