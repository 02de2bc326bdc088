"""Says hello when it is imported, on memory: enqueues a job, and says goodbye at the end."""

import atexit
import os
import sys

from shop import Notify, app  # type: ignore[import-not-found]

__all__ = ["app"]

print("hello")  # noqa: T201 - it minds no closed output
sys.stderr.write("hello\n")
if os.environ.get("QUEUEY_URL") == "memory:":
    app.enqueue(Notify(to="ada"))
atexit.register(sys.stderr.write, "goodbye\n")
