"""Takes a minute to import, and says so.

With SWALLOW it also swallows what interrupts it, with TAKE it takes SIGINT away from us before.
"""

import os
import signal
import sys
import time

from shop import app  # type: ignore[import-not-found]

__all__ = ["app"]

if "TAKE" in os.environ:
    signal.signal(signal.SIGINT, signal.default_int_handler)
sys.stderr.write("importing\n")
sys.stderr.flush()
try:
    time.sleep(60)
except BaseException:
    if "SWALLOW" not in os.environ:
        raise
