"""Enqueues a job when it is imported, so that a worker on `memory:` has one; ignores SIGTERM.

No app should do the latter, but some framework may.
"""

import signal

from shop import Notify, app  # type: ignore[import-not-found]

__all__ = ["app"]

signal.signal(signal.SIGTERM, signal.SIG_IGN)
app.enqueue(Notify(to="ada"))
