"""An example app that compresses files; `scripts/demo` runs it. Begin with `jobs.py`."""
