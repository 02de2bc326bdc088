"""Time limits for handlers that nothing can kill: settle at the limit, free the thread if possible.

At the limit the watchdog claims the attempt, raises `JobTimedOut` in the thread that runs it, and
has the attempt settled as timed out. The exception ends pure Python at once and a blocking call at
its own end; until then the slot is *overdue*: it takes no job, and nothing waits for it. Who
settles an attempt is settled by a one-shot claim, so it happens exactly once, and a late result is
dropped. A soft limit is the same claim with `SoftTimeout`, around the handler alone.
"""

import ctypes
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from datetime import timedelta

from queuey_sync.errors import Interrupt, JobTimedOut, SoftTimeout
from queuey_sync.pools.base import Attempt, Result, Slot

log = logging.getLogger(__name__)


class _Alarm:
    """An exception that will be raised in the thread that made this, unless it is in time."""

    def __init__(
        self, limit: timedelta, error: type[Interrupt], settle: Callable[[], None] | None = None
    ) -> None:
        self.deadline = time.monotonic() + limit.total_seconds()
        self.settle = settle
        self._error = error
        self._thread = threading.get_ident()
        self._claim = threading.Lock()
        self._raised = threading.Event()
        """Set by the watchdog when the exception is on its way to the thread."""

    def claim(self) -> bool:
        """True for whoever asks first, runner or watchdog: in time, or not."""
        return self._claim.acquire(blocking=False)

    def ring(self) -> None:
        """Raise the exception; by the watchdog, which holds the claim."""
        _raise_in(self._thread, self._error)
        self._raised.set()

    def take_back(self) -> None:
        """Let the exception come here, or take it back; by the thread, which lost the claim."""
        self._raised.wait()
        _raise_in(self._thread, None)


class Watchdog:
    """Watches the attempts of a worker's slots.

    Args:
        shortest: The shortest limit, hard or soft, that any attempt has.
        slots: How many slots there are.
        overdue: Called with 1 when a slot becomes overdue, with -1 when its thread is free again.
        died: Called with the error when the watchdog itself fails, since no limit holds from then.
    """

    def __init__(
        self,
        shortest: timedelta,
        slots: int,
        *,
        overdue: Callable[[int], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self._shortest = shortest.total_seconds()
        self._overdue = overdue
        self._died = died
        self._alarms: set[_Alarm] = set()
        """Each is added by its thread, and removed by whoever claims it: one call into C each."""
        self._closed = threading.Event()
        self._settlers = ThreadPoolExecutor(slots, thread_name_prefix="queuey-overdue")
        self._thread = threading.Thread(target=self._watch, name="queuey-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch; does nothing the second time."""
        if self._thread.ident is None:
            self._thread.start()

    def run(
        self, slot: Slot, attempt: Attempt, limit: timedelta, settle: Callable[[], None]
    ) -> Result | None:
        """Run an attempt; None when it was overdue, and `settle` was called in its place."""
        alarm = _Alarm(limit, JobTimedOut, settle)
        try:
            self._alarms.add(alarm)
            result = slot.run(attempt)
            if alarm.claim():
                self._alarms.discard(alarm)
                return result
            # The exception must not strike later, in the runner.
            alarm.take_back()
        except JobTimedOut:
            pass
        late = time.monotonic() - alarm.deadline
        job = attempt.context.job_id
        log.warning("job %s ended %.1f s after its time limit; its result is dropped", job, late)
        self._overdue(-1)
        return None

    def soft_limit(self, limit: timedelta) -> AbstractContextManager[object]:
        """What raises `SoftTimeout` in the thread that is inside it for longer than this."""
        return _SoftLimit(self._alarms, limit)

    def close(self) -> None:
        """Stop watching; returns when every overdue attempt has been settled."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._settlers.shutdown(wait=True)

    def _watch(self) -> None:
        try:
            self._watch_until_closed()
        except BaseException as error:  # noqa: BLE001 - the worker ends with it
            self._died(error)

    def _watch_until_closed(self) -> None:
        nap = self._shortest
        while not self._closed.wait(nap):
            now = time.monotonic()
            # An attempt that starts during the nap ends no sooner than a whole limit from now.
            nap = self._shortest
            for alarm in list(self._alarms):
                if alarm.deadline > now:
                    nap = min(nap, alarm.deadline - now)
                elif alarm.claim():
                    self._alarms.discard(alarm)
                    self._end(alarm)

    def _end(self, alarm: _Alarm) -> None:
        if alarm.settle is None:
            alarm.ring()
            return
        self._overdue(1)
        alarm.ring()
        self._settlers.submit(alarm.settle)


class _SoftLimit(AbstractContextManager[None]):
    """Raises `SoftTimeout` in the thread that entered it. Owner: that thread."""

    def __init__(self, alarms: set[_Alarm], limit: timedelta) -> None:
        self._alarms = alarms
        self._limit = limit

    def __enter__(self) -> None:
        self._alarm = _Alarm(self._limit, SoftTimeout)
        self._alarms.add(self._alarm)

    def __exit__(self, *_raised: object) -> None:
        if self._alarm.claim():
            self._alarms.discard(self._alarm)
            return
        # A hard limit that is on its way meanwhile may go with it: its own claim still stands.
        with suppress(SoftTimeout):
            self._alarm.take_back()


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an exception in a thread at its next bytecode; None takes one on its way back."""
    argument = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), argument)
