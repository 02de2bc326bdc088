"""The management commands, each in the module of its name."""
