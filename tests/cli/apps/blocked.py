"""Has a standard output that nobody reads from, and a job that runs for long."""

import io
import sys
import threading

from shop import Pack, app  # type: ignore[import-not-found]

__all__ = ["app"]


class Blocked(io.StringIO):
    """Takes a long time to flush: as long as a full pipe."""

    def flush(self) -> None:
        """Never returns."""
        threading.Event().wait()


sys.stdout = Blocked()
app.enqueue(Pack(600))
