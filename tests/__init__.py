"""The tests; `support/` holds what several of them share, `conftest.py` the fixtures."""
