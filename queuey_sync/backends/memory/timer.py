"""What lets a message of the memory backend wait: the `Clock` it asks, and real time as one thread.

It knows nothing of messages. A clock that a test moves by hand is in `clock.py`.
"""

import itertools
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from heapq import heappop, heappush
from typing import Protocol


class Clock(Protocol):
    """Calls back later."""

    def call_later(self, delay: timedelta, callback: Callable[[], None]) -> None:
        """Call `callback` once, `delay` from now or later, on any thread."""


class TimerThread:
    """Real time: one thread, which lives only while something waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []  # guarded by _changed
        self._alive = False  # guarded by _changed
        self._numbers = itertools.count()

    def call_later(self, delay: timedelta, callback: Callable[[], None]) -> None:
        """Call `callback` on the timer thread, never early."""
        due = time.monotonic() + delay.total_seconds()
        with self._changed:
            if not self._alive:
                threading.Thread(target=self._run, name="queuey-memory-timer", daemon=True).start()
                self._alive = True
            heappush(self._waiting, (due, next(self._numbers), callback))
            self._changed.notify()

    def close(self) -> None:
        """Call everything that waits at once, in this thread, and let the timer thread end."""
        with self._changed:
            waiting, self._waiting = self._waiting, []
            self._changed.notify()
        for _, _, callback in waiting:
            callback()

    def _run(self) -> None:
        while callback := self._next_due():
            callback()

    def _next_due(self) -> Callable[[], None] | None:
        with self._changed:
            while self._waiting:
                left = self._waiting[0][0] - time.monotonic()
                if left <= 0:
                    return heappop(self._waiting)[2]
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            self._alive = False
            return None
