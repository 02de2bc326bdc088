"""The command line: each command in `commands/`, put together in `main.py`, which reports errors."""
