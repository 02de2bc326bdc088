"""Ends the process when it is imported, as a script may."""

import sys

sys.exit("usage: quits")
