"""Time limits for handlers that nothing can kill: settle at the limit, free the thread if possible.

At the limit the watchdog claims the attempt, raises `JobTimedOut` in the thread that runs it, and
has the attempt settled as timed out. The exception ends pure Python at once and a blocking call at
its own end; until then the slot is *overdue*: it takes no job, and nothing waits for it. Who
settles an attempt is settled by a one-shot claim, so it happens exactly once, and a late result is
dropped.
"""

import ctypes
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from queuey_sync.errors import JobTimedOut
from queuey_sync.pools.base import Attempt, Pool, Result

log = logging.getLogger(__name__)


class _Watch:
    """One attempt under a time limit."""

    def __init__(self, deadline: float, settle: Callable[[], None]) -> None:
        self.deadline = deadline
        self.settle = settle
        self.thread = threading.get_ident()
        self._claim = threading.Lock()
        self.raised = threading.Event()
        """Set by the watchdog when the exception is on its way to the thread."""

    def claim(self) -> bool:
        """True for whoever asks first, runner or watchdog: that one settles the attempt."""
        return self._claim.acquire(blocking=False)


class Watchdog:
    """Watches the attempts of a worker's slots.

    Args:
        limit: How long an attempt may run. slots: How many slots there are. overdue: Called with 1
        when a slot becomes overdue, with -1 when its thread is free again. died: Called with the
        error when the watchdog itself fails, since no limit holds from then on.
    """

    def __init__(
        self,
        limit: timedelta,
        slots: int,
        *,
        overdue: Callable[[int], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self._limit = limit.total_seconds()
        self._overdue = overdue
        self._died = died
        self._watches: dict[int, _Watch] = {}
        """The running attempt of each runner, by thread. A runner replaces its own entry only."""
        self._closed = threading.Event()
        self._settlers = ThreadPoolExecutor(slots, thread_name_prefix="queuey-overdue")
        self._thread = threading.Thread(target=self._watch, name="queuey-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch; does nothing the second time."""
        if self._thread.ident is None:
            self._thread.start()

    def run(self, pool: Pool, attempt: Attempt, settle: Callable[[], None]) -> Result | None:
        """Run an attempt; None when it was overdue, and `settle` was called in its place."""
        watch = _Watch(time.monotonic() + self._limit, settle)
        try:
            self._watches[watch.thread] = watch
            result = pool.run(attempt)
            if watch.claim():
                return result
            # The exception must not strike later, in the runner: let it come here, or take it back.
            watch.raised.wait()
            _raise_in(watch.thread, None)
        except JobTimedOut:
            pass
        late = time.monotonic() - watch.deadline
        job = attempt.context.job_id
        log.warning("job %s ended %.1f s after its time limit; its result is dropped", job, late)
        self._overdue(-1)
        return None

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
        nap = self._limit
        while not self._closed.wait(nap):
            now = time.monotonic()
            # An attempt that starts during the nap ends no sooner than a whole limit from now.
            nap = self._limit
            for watch in list(self._watches.values()):
                if watch.deadline > now:
                    nap = min(nap, watch.deadline - now)
                elif watch.claim():
                    self._end(watch)

    def _end(self, watch: _Watch) -> None:
        self._overdue(1)
        _raise_in(watch.thread, JobTimedOut)
        watch.raised.set()
        self._settlers.submit(watch.settle)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an exception in a thread at its next bytecode; None takes one on its way back."""
    argument = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), argument)
