"""The command line: each command is in `commands/`; `main.py` puts them together."""
