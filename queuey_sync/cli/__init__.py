"""The command line, one module a command; `commands.py` puts them together and reports errors."""
