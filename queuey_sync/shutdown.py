"""The toolkit for loops that stop when asked: ``Shutdown``, ``Watcher`` and ``Backoff``.

Nothing is ever cancelled: a loop asks its watcher and leaves between two units of work. This module
knows nothing of jobs, queues or brokers, and imports nothing of ours but ``durations``, so that any
program may use it alone. The same for code that retries with tenacity is in ``retrying.py``; what a
worker does when it is asked to stop is in ``worker/worker.py``.

A signal handler runs on the main thread, between two of its bytecodes, whatever that thread holds
at that moment. So a stop takes no lock: ``threading.Event.set()`` and ``logging`` both would, and
could wait for ever for the very thread that they interrupted.
"""

import atexit
import logging
import math
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from types import FrameType

from queuey_sync.durations import Duration, format_duration, parse_duration

__all__ = ["Backoff", "Shutdown", "Watcher"]

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LONGEST_NAP = 1.0
"""Seconds that a waiter sleeps before it looks again: the bound where a platform misses a wake, and
for an exception raised in the waiting thread by another, which is seen between two naps only."""
_SHORTEST_SLICE = timedelta(milliseconds=10)


class Watcher:
    """Tells a loop whether it should go on; any number of threads may share one.

    ``Shutdown.watcher()`` gives it out. One made directly belongs to no ``Shutdown`` and says
    "running" for ever: the neutral default for code that takes a watcher.

    >>> Watcher().is_running()
    True
    """

    def __init__(self) -> None:
        # Any thread and any signal handler writes it, only ever from False to True.
        self._stopping = False
        # One bell for each waiting thread, added and removed by that thread alone. Adding, removing
        # and copying are one call into C each, so no signal handler sees the set half changed.
        self._bells: set[SimpleQueue[None]] = set()

    def is_running(self) -> bool:
        """Say that no stop was requested."""
        return not self._stopping

    def is_stopping(self) -> bool:
        """Say that a stop was requested; it is never taken back."""
        return self._stopping

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block until a stop is requested; at once if it already was.

        Args:
            timeout: The longest wait; None waits for ever.

        Returns:
            True for a stop, False when the timeout ended first.
        """
        seconds = (
            math.inf if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        )
        end = time.monotonic() + seconds
        bell: SimpleQueue[None] = SimpleQueue()
        try:
            # The bell hangs before the flag is read, and a stop sets the flag before it rings: a
            # stop between the two is seen here or heard there.
            self._bells.add(bell)
            while not self._stopping:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                with suppress(Empty):
                    bell.get(timeout=min(left, _LONGEST_NAP))
            return True
        finally:
            self._bells.discard(bell)

    def sleep(self, delay: Duration) -> bool:
        """Sleep for a time that a stop cuts short.

        Returns:
            True when the sleep was completed; False when a stop cut it short, and at once when one
            came before it.

        >>> Watcher().sleep("1ms")
        True
        """
        return not self.wait(parse_duration(delay, "delay"))

    def __reduce__(self) -> str:
        """Refuse to be copied or pickled: the copy would never hear of a stop."""
        raise TypeError(
            "a Watcher cannot be copied or sent to another process, where no stop would reach it;"
            " make a Shutdown in that process and let it listen for signals"
        )

    def _stop(self) -> None:
        """Set the flag, then wake every waiter; safe inside a signal handler."""
        self._stopping = True
        for bell in tuple(self._bells):
            bell.put(None)


class Shutdown:
    """Asks loops to stop at their next opportunity; make one for each process.

    Stopping is one-way. Dropping a ``Shutdown`` stops nothing: its watchers go on saying "running".

    >>> shutdown = Shutdown()
    >>> watcher = shutdown.watcher()
    >>> shutdown.stop()
    >>> watcher.is_running(), watcher.sleep("15m")
    (False, False)
    """

    def __init__(self) -> None:
        self._watcher = Watcher()
        # Main thread only.
        self._listening = False

    def stop(self) -> None:
        """Request the stop; again is fine, from any thread and from inside a signal handler."""
        self._watcher._stop()  # noqa: SLF001 - the one writer, kept out of what watchers offer

    def watcher(self) -> Watcher:
        """Give out the watcher to hand to a loop; it outlives this object."""
        return self._watcher

    def listen_for_signals(self) -> None:
        """Stop on SIGTERM and on SIGINT; calling it again changes nothing.

        The handlers replace those that were there, so with two listening ``Shutdown`` objects the
        later one hears. A second signal is logged and changes nothing: work in flight is not cut.

        Raises:
            RuntimeError: This is not the main thread, the only one that can install handlers.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "listen_for_signals() was called on another thread: call it on the main thread,"
                " the only one where Python installs signal handlers"
            )
        if self._listening:
            return
        report = _start_reporter()

        def on_signal(signum: int, _frame: FrameType | None) -> None:
            self.stop()
            report(signum)

        for signum in _SIGNALS:
            signal.signal(signum, on_signal)
        self._listening = True


def _start_reporter() -> Callable[[int], None]:
    """Start the thread that logs signals, and return what hands it one from inside a handler."""
    arrived: SimpleQueue[int | None] = SimpleQueue()

    def write_records() -> None:
        text = "received %s: stopping at the next opportunity"
        while (signum := arrived.get()) is not None:
            _log.info(text, signal.Signals(signum).name)
            text = "received %s again: already stopping, work in flight is not cut"

    def finish() -> None:
        arrived.put(None)
        reporter.join(timeout=1)

    reporter = threading.Thread(target=write_records, name="queuey-signals", daemon=True)
    reporter.start()
    # A loop that leaves at once would end the process before the record of its reason is written.
    atexit.register(finish)
    return arrived.put


class Backoff:
    """A growing delay between failures, waited out in slices so that no wait outlasts a stop.

    Without jitter: the schedule is exact. One loop owns it; it is not for sharing between threads.

    Args:
        initial: The delay after the first failure; above ``max`` it counts as ``max``.
        max: The ceiling of the delay.
        slice: The longest single sleep inside ``wait()``. Keep it well below the grace period that
            the platform gives between SIGTERM and SIGKILL.
        factor: What the delay is multiplied with after each failure, an integer; 0 counts as 1.

    Raises:
        ValueError: A duration is none, or the factor is negative.
        TypeError: A value is of another type.

    >>> backoff = Backoff(initial="5s", max="15s")
    >>> [backoff.failed().seconds for _ in range(3)]
    [5, 10, 15]
    >>> backoff.succeeded()
    >>> backoff.delay().seconds, backoff.attempt()
    (5, 0)
    """

    def __init__(
        self,
        initial: Duration = "5s",
        max: Duration = "15m",  # noqa: A002 - the word that retry policies use too
        slice: Duration = "1m",  # noqa: A002 - the word of the docs
        factor: int = 2,
    ) -> None:
        if type(factor) is not int:
            raise TypeError(f"factor: expected an integer, got {factor!r}")
        if factor < 0:
            raise ValueError(f"factor: {factor!r} is negative")
        self._ceiling = parse_duration(max, "max")
        self._initial = min(parse_duration(initial, "initial"), self._ceiling)
        self._slice = parse_duration(slice, "slice")
        self._factor = factor or 1
        self._attempt = 0
        self._current = self._next = self._initial

    def failed(self) -> timedelta:
        """Count a failure.

        Returns:
            The delay that applies to this failure, which ``wait()`` now serves.
        """
        self._attempt += 1
        self._current = self._next
        # Compared by division, because a product far above the ceiling would overflow.
        grows_past = self._current > self._ceiling // self._factor
        self._next = self._ceiling if grows_past else self._current * self._factor
        return self._current

    def succeeded(self) -> None:
        """Go back to the initial delay and to no failures."""
        self._attempt = 0
        self._current = self._next = self._initial

    def delay(self) -> timedelta:
        """Give the delay that the next failure will get."""
        return self._next

    def attempt(self) -> int:
        """Give the number of failures since the last success."""
        return self._attempt

    def wait(self, watcher: Watcher) -> bool:
        """Serve the delay of the last failure; before any, the initial delay.

        Returns:
            True when the wait was served. False when a stop arrived before or during it: leave the
            loop, do not retry.

        >>> shutdown, backoff = Shutdown(), Backoff(initial="15m")
        >>> shutdown.stop()
        >>> backoff.wait(shutdown.watcher())
        False
        """
        step = max(self._slice, _SHORTEST_SLICE)
        left = self._current
        while watcher.sleep(min(left, step)):
            left -= step
            if left <= timedelta(0):
                return True
        _log.debug("a stop ended a wait of %s", format_duration(self._current))
        return False
