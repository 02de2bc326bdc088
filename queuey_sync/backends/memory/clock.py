"""A clock that stands still until somebody moves it, for `MemoryBackend`.

It knows nothing of jobs: it keeps callbacks and calls them when their time comes. Users import it
from `queuey_sync.testing`.
"""

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta
from heapq import heappop, heappush

from queuey_sync.durations import Duration, parse_duration


class ManualClock:
    """Time that passes only in `advance` and `jump`, so that no test waits for an hour.

    >>> clock = ManualClock()
    >>> clock.call_later(timedelta(hours=1), lambda: print("an hour later"))
    >>> clock.advance("59m")
    >>> clock.advance("1m")
    an hour later
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = timedelta(0)  # guarded by _lock
        self._waiting: list[tuple[timedelta, int, Callable[[], None]]] = []  # guarded by _lock
        self._numbers = itertools.count()

    @property
    def now(self) -> timedelta:
        """How much time has passed."""
        with self._lock:
            return self._now

    def call_later(self, delay: timedelta, callback: Callable[[], None]) -> None:
        """Call `callback` when `delay` from now has come; any thread may ask."""
        with self._lock:
            heappush(self._waiting, (self._now + delay, next(self._numbers), callback))

    def advance(self, duration: Duration) -> None:
        """Let time pass, and call in this thread, in order, everything whose time comes.

        Callbacks see the moment they were waiting for as now; what they schedule within `duration`
        is called too.
        """
        until = self.now + parse_duration(duration)
        while self.jump(until):
            pass

    def jump(self, until: timedelta | None = None) -> bool:
        """Go straight to the next moment that a callback waits for, and call it in this thread.

        Args:
            until: Go no further than this reading of `now`, but there if nothing comes before it.

        Returns:
            Whether there was a callback.
        """
        callback = self._next_due(until)
        if callback is None:
            return False
        callback()
        return True

    def _next_due(self, until: timedelta | None) -> Callable[[], None] | None:
        with self._lock:
            if self._waiting and (until is None or self._waiting[0][0] <= until):
                self._now, _, callback = heappop(self._waiting)
                return callback
            if until is not None:
                self._now = max(self._now, until)
            return None
