"""The runners: each takes a delivery, runs it, decides and settles, and takes the next.

Taking is pulling: what a runner has taken always finishes, and what nobody has taken goes back to
the broker when the worker stops. A runner ends when it takes a sentinel. Next: `outcome.py`,
`settle.py`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from queuey_sync.backends.base import Delivery, Inbox
from queuey_sync.context import JobContext
from queuey_sync.envelope import Envelope
from queuey_sync.errors import MalformedEnvelope, StartError
from queuey_sync.handlers import Handler
from queuey_sync.pools.base import NEVER, Attempt, Kind, Pool, Result, Slot, timed_out
from queuey_sync.retry import RetryPolicy
from queuey_sync.shutdown import Watcher
from queuey_sync.worker.checks import Limits
from queuey_sync.worker.outcome import decide
from queuey_sync.worker.settle import Settler
from queuey_sync.worker.watchdog import Watchdog

_NEVER = RetryPolicy.none()
_NO_MORE = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every runner of a worker shares; but for the permits, nothing in here changes."""

    inbox: Inbox
    pool: Pool
    handlers: Mapping[str, Handler]
    policies: Mapping[str, RetryPolicy]
    limits: Mapping[str, Limits]
    settler: Settler
    watcher: Watcher
    longest_delay: timedelta | None
    permits: Iterator[object]
    """A runner takes one for each delivery, and ends when there are no more. One call into C each,
    so that it needs no lock."""


class Slots:
    """The runners of one worker, each in a thread of its own.

    Args:
        work: What they work with.
        count: How many there are.
        ended: Called by a runner when it ends, with the error that ended it or None.
        overdue: Called with 1 when a runner's attempt is over its time limit, with -1 when the
            runner is free again.
        watchdog_died: Called with the error, should the watchdog fail.
    """

    def __init__(
        self,
        work: Work,
        count: int,
        *,
        ended: Callable[[BaseException | None], None],
        overdue: Callable[[int], None],
        watchdog_died: Callable[[BaseException], None],
    ) -> None:
        self._work = work
        self._ended = ended
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="queuey-slot")
        self._lock = threading.Lock()
        self._begun = 0
        """How many runners ever began. Guarded by `_lock`, as is `_stopping`."""
        self._stopping = False
        self._running: dict[int, tuple[Envelope, float]] = {}
        """The job of each runner and when it began, by thread: each writes and removes its own."""
        self._watchdog: Watchdog | None = None
        limits = [one for limits in work.limits.values() for one in limits if one is not None]
        if limits and not work.pool.enforces_limits:
            self._watchdog = Watchdog(min(limits), count, overdue=overdue, died=watchdog_died)

    def start_one(self) -> None:
        """Start one more runner."""
        if self._watchdog is not None:
            self._watchdog.start()
        self._executor.submit(self.run)

    def stop(self) -> int:
        """Let no more runners begin, and return how many did: an interrupt may lose a start."""
        with self._lock:
            self._stopping = True
            return self._begun

    def running(self) -> list[tuple[Envelope, float]]:
        """The jobs that run now, overdue ones too, and when each began on the monotonic clock."""
        return list(self._running.values())

    def close(self) -> None:
        """Let go of the threads, when no runner is busy but the overdue ones."""
        if self._watchdog is not None:
            self._watchdog.close()
        self._executor.shutdown(wait=False)

    def run(self) -> None:
        """Be a runner, in this thread, until a sentinel is taken or there are no more permits."""
        with self._lock:
            if self._stopping:
                return
            self._begun += 1
        error: BaseException | None = None
        try:
            slot = self._work.pool.slot()
            try:
                while self._take_one(slot):
                    pass
            finally:
                slot.close()
        except BaseException as fault:  # noqa: BLE001 - it ends the worker, which raises it
            error = fault
        self._ended(error)

    def _take_one(self, slot: Slot) -> bool:
        if next(self._work.permits, _NO_MORE) is _NO_MORE:
            return False
        slot.ready()
        delivery = self._work.inbox.get()
        if delivery is None:
            return False
        try:
            self._process(delivery, slot)
        except StartError:
            delivery.release()
            raise
        except Exception as error:  # noqa: BLE001 - one delivery is lost to it, never a slot
            self._work.settler.leave(delivery, error)
        return True

    def _process(self, delivery: Delivery, slot: Slot) -> None:
        try:
            envelope = delivery.envelope
        except MalformedEnvelope:
            self._work.settler.bury(delivery)
            return
        handler = self._work.handlers.get(envelope.job_type)
        if handler is None:
            self._finish(Result(kind=Kind.UNHANDLED), delivery, envelope, _NEVER)
            return
        policy = self._work.policies[envelope.job_type]
        attempt = self._attempt(handler, envelope, policy)
        thread = threading.get_ident()
        self._running[thread] = envelope, time.monotonic()
        try:
            result = self._run_attempt(slot, attempt, delivery, envelope, policy)
        finally:
            del self._running[thread]
        if result is not None:
            self._finish(result, delivery, envelope, policy)

    def _run_attempt(
        self,
        slot: Slot,
        attempt: Attempt,
        delivery: Delivery,
        envelope: Envelope,
        policy: RetryPolicy,
    ) -> Result | None:
        limit = attempt.time_limit
        if limit is None or self._watchdog is None:
            return slot.run(attempt)

        def settle() -> None:
            try:
                self._finish(timed_out(limit), delivery, envelope, policy)
            except Exception as error:  # noqa: BLE001 - the thread that calls this tells nobody
                self._work.settler.leave(delivery, error)

        return self._watchdog.run(slot, attempt, limit, settle)

    def _attempt(self, handler: Handler, envelope: Envelope, policy: RetryPolicy) -> Attempt:
        limit, soft = self._work.limits[envelope.job_type]
        context = JobContext(
            job_id=envelope.job_id,
            job_type=handler.job_type.name,
            queue=handler.job_type.queue.full_name,
            attempt=envelope.attempt,
            max_attempts=policy.max_attempts,
            deferrals=envelope.deferrals,
            priority=envelope.priority,
            enqueued_at_ms=envelope.enqueued_at_ms,
            correlation_id=envelope.correlation_id,
            deadline=None if limit is None else time.monotonic() + limit.total_seconds(),
            watcher=self._work.watcher,
        )
        interrupt = NEVER
        if soft is not None and self._watchdog is not None:
            interrupt = self._watchdog.soft_limit(soft)
        return Attempt(handler, envelope.payload, context, limit, soft, interrupt)

    def _finish(
        self, result: Result, delivery: Delivery, envelope: Envelope, policy: RetryPolicy
    ) -> None:
        decision = decide(result, envelope, policy, longest_delay=self._work.longest_delay)
        self._work.settler.settle(decision, delivery, envelope, result.traceback)
