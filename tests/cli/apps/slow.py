"""Takes a minute to import, and says so; with SWALLOW it also swallows what interrupts it."""

import os
import sys
import time

from shop import app  # type: ignore[import-not-found]

__all__ = ["app"]

sys.stderr.write("importing\n")
sys.stderr.flush()
try:
    time.sleep(60)
except BaseException:
    if "SWALLOW" not in os.environ:
        raise
