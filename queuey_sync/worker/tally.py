"""What became of the jobs of one worker, counted by queue, from any thread.

`settle.py` counts; a drain's summary (`drain.py`), the worker's handle and `Reports` read.
"""

import math
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Counts:
    """How many deliveries of a queue ended in which way."""

    succeeded: int = 0
    retried: int = 0
    deferred: int = 0
    dead: int = 0
    """Given up on; malformed bodies too."""


class Progress(NamedTuple):
    """How far a drain is, in deliveries."""

    finished: int
    expected: int
    """Those and all that wait, as of a second ago; it grows when jobs are added."""


class Tally:
    """Counts deliveries as they are settled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finished = 0
        """Deliveries that nothing more is done with, however they ended. Guarded by `_lock`."""
        self._expected = 0
        """How many deliveries there were and will be, as far as it was seen. Guarded by `_lock`."""
        self._ends: Counter[tuple[str, str]] = Counter()
        """By queue and field of `Counts`. Guarded by `_lock`."""
        self._late = 0
        """Results that came after their time limit. Guarded by `_lock`."""
        self._due: deque[float] = deque()
        """When each job that was held is due, on the monotonic clock. Guarded by `_lock`."""

    def finish(self, queue: str, end: str | None = None, held: timedelta | None = None) -> None:
        """Count a delivery that is done with.

        Args:
            queue: Where it came from.
            end: The field of `Counts`; None for one that goes back to its queue.
            held: How long the copy of it waits that was placed.
        """
        with self._lock:
            self._finished += 1
            if end is not None:
                self._ends[queue, end] += 1
            if held is not None:
                self._due.append(time.monotonic() + held.total_seconds())

    def drop_late(self) -> None:
        """Count a result that came after its time limit, and that nothing is done with."""
        with self._lock:
            self._late += 1

    @property
    def late(self) -> int:
        """How many of those there were."""
        with self._lock:
            return self._late

    def expect(self, deliveries: int) -> None:
        """Take note of how many deliveries there will have been when the queues are empty."""
        with self._lock:
            self._expected = deliveries

    def progress(self) -> "Progress":
        """How far a drain is."""
        with self._lock:
            return Progress(self._finished, max(self._expected, self._finished))

    @property
    def finished(self) -> int:
        """How many deliveries nothing more is done with."""
        with self._lock:
            return self._finished

    def counts(self, queue: str) -> Counts:
        """What became of the deliveries of one queue."""
        with self._lock:
            ends = {end: count for (name, end), count in self._ends.items() if name == queue}
        return Counts(**ends)

    def totals(self) -> Counter[str]:
        """The deliveries of all queues, by field of `Counts`."""
        totals: Counter[str] = Counter()
        with self._lock:
            for (_, end), count in self._ends.items():
                totals[end] += count
        return totals

    def next_due(self, now: float) -> float | None:
        """When the first job that was held here comes back, if one does after `now`."""
        with self._lock:
            self._due = deque(due for due in self._due if due > now)
            return min(self._due, default=None)


class Reports:
    """A line now and then of what was done. Owner: the thread that runs the worker.

    Args:
        tally: What is counted.
        every: How long a line is about; None for no lines at all.
    """

    def __init__(self, tally: Tally, every: timedelta | None) -> None:
        self._tally = tally
        self._seconds = math.inf if every is None else every.total_seconds()
        self._before: Counter[str] = Counter()
        self._began = time.monotonic()

    def line(self) -> str | None:
        """The line, if it is time for one and anything was done."""
        now = time.monotonic()
        if now - self._began < self._seconds:
            return None
        seconds, self._began = now - self._began, now
        totals = self._tally.totals()
        done = totals - self._before
        self._before = totals
        if not done:
            return None
        counts = ", ".join(f"{done[one.name]} {one.name}" for one in fields(Counts))
        return f"in {seconds:.0f} s: {counts}"
