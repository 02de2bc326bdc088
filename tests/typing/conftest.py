"""Keeps pytest from importing the files that only type checkers read."""

collect_ignore_glob = ["accepted*.py", "rejected*.py"]
