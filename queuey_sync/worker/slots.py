"""The runners: each takes a delivery, runs it, decides and settles, and takes the next.

Taking is pulling: what a runner has taken always finishes, and what nobody has taken goes back to
the broker when the worker stops. A runner ends when it takes a sentinel. Next: `outcome.py`,
`settle.py`.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from queuey_sync.backends.base import Delivery, Inbox
from queuey_sync.context import JobContext
from queuey_sync.envelope import Envelope
from queuey_sync.errors import MalformedEnvelope
from queuey_sync.handlers import Handler
from queuey_sync.pools.base import Attempt, Kind, Pool, Result
from queuey_sync.retry import RetryPolicy
from queuey_sync.shutdown import Watcher
from queuey_sync.worker.outcome import decide, timed_out
from queuey_sync.worker.settle import Settler
from queuey_sync.worker.watchdog import Watchdog

log = logging.getLogger(__name__)

_NEVER = RetryPolicy.none()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every runner of a worker shares; nothing in here changes while it runs."""

    inbox: Inbox
    pool: Pool
    handlers: Mapping[str, Handler]
    policies: Mapping[str, RetryPolicy]
    settler: Settler
    watcher: Watcher
    time_limit: timedelta | None
    longest_delay: timedelta | None


class Slots:
    """The runners of one worker, each in a thread of its own.

    Args:
        work: What they work with. count: How many there are. ended: Called by a runner when it
        ends, with the error that ended it or None. overdue: Called with 1 when a runner's attempt
        is over its time limit, with -1 when the runner
            is free again.
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
        self._watchdog: Watchdog | None = None
        if work.time_limit is not None and not work.pool.enforces_time_limit:
            self._watchdog = Watchdog(work.time_limit, count, overdue=overdue, died=watchdog_died)

    def start_one(self) -> None:
        """Start one more runner."""
        if self._watchdog is not None:
            self._watchdog.start()
        self._executor.submit(self._run)

    def close(self) -> None:
        """Let go of the threads, when no runner is busy but the overdue ones."""
        if self._watchdog is not None:
            self._watchdog.close()
        self._executor.shutdown(wait=False)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while self._take_one():
                pass
        except BaseException as fault:  # noqa: BLE001 - it ends the worker, which raises it
            error = fault
        self._ended(error)

    def _take_one(self) -> bool:
        delivery = self._work.inbox.get()
        if delivery is None:
            return False
        try:
            self._process(delivery)
        except Exception:
            log.exception("a delivery of %s was left unsettled and will come back", delivery.queue)
        return True

    def _process(self, delivery: Delivery) -> None:
        try:
            envelope = delivery.envelope
        except MalformedEnvelope:
            delivery.bury()
            return
        handler = self._work.handlers.get(envelope.job_type)
        if handler is None:
            self._finish(Result(kind=Kind.UNHANDLED), delivery, envelope, _NEVER)
            return
        policy = self._work.policies[envelope.job_type]
        attempt = self._attempt(handler, envelope, policy)
        if self._watchdog is None:
            result = self._work.pool.run(attempt)
        else:
            overdue = self._settle_timed_out(delivery, envelope, policy)
            late_or_result = self._watchdog.run(self._work.pool, attempt, overdue)
            if late_or_result is None:
                return
            result = late_or_result
        self._finish(result, delivery, envelope, policy)

    def _attempt(self, handler: Handler, envelope: Envelope, policy: RetryPolicy) -> Attempt:
        limit = self._work.time_limit
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
        return Attempt(handler, envelope.payload, context)

    def _settle_timed_out(
        self, delivery: Delivery, envelope: Envelope, policy: RetryPolicy
    ) -> Callable[[], None]:
        limit = self._work.time_limit
        assert limit is not None  # noqa: S101 - narrows the type: a watchdog has a limit

        def settle() -> None:
            self._finish(timed_out(limit), delivery, envelope, policy)

        return settle

    def _finish(
        self, result: Result, delivery: Delivery, envelope: Envelope, policy: RetryPolicy
    ) -> None:
        decision = decide(result, envelope, policy, longest_delay=self._work.longest_delay)
        self._work.settler.settle(decision, delivery, envelope, result.traceback)
