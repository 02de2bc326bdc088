"""What a handler is told about its job: `JobContext`, and `current_job` for code further down.

One context is made for each run of a handler, so it is one cheap struct. It knows nothing of
brokers or settling. `pools/invoke.py` makes it and enters it; `observe/logs.py` reads it for log
records.
"""

import time
from contextvars import ContextVar
from datetime import timedelta
from uuid import UUID

import msgspec

from queuey_sync.shutdown import Watcher

_NO_ID = UUID(int=0)
_RUNNING = Watcher()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a handler: which job, which attempt, and how long it may take.

    Every field has a neutral default, so that a test can make one by hand.

    Attributes:
        job_id: The job's id, the same in every attempt.
        job_type: The name that the job was declared with.
        queue: The full name of the queue that the job was declared on.
        attempt: This attempt, counted from 1.
        max_attempts: How many attempts the policy allows that judges this one.
        deferrals: How often the job was deferred.
        priority: The level that it arrived with.
        enqueued_at_ms: When it was first enqueued, in milliseconds since 1970.
        correlation_id: The mark that the enqueuing code gave it, or None.
        deadline: When its time limit ends, on the clock of ``time.monotonic()``, or None.
        watcher: Tells whether the worker is stopping, and sleeps until it does.

    >>> context = JobContext(attempt=3, max_attempts=3)
    >>> context.is_last_attempt, context.stopping
    (True, False)
    """

    job_id: UUID = _NO_ID
    job_type: str = ""
    queue: str = ""
    attempt: int = 1
    max_attempts: int = 1
    deferrals: int = 0
    priority: int = 0
    enqueued_at_ms: int = msgspec.field(default_factory=_now_ms)
    correlation_id: str | None = None
    deadline: float | None = None
    watcher: Watcher = _RUNNING

    @property
    def age(self) -> timedelta:
        """How long ago the job was first enqueued; never negative, whatever the clocks say."""
        return timedelta(milliseconds=max(_now_ms() - self.enqueued_at_ms, 0))

    @property
    def is_last_attempt(self) -> bool:
        """Whether the job is given up on if this attempt fails."""
        return self.attempt >= self.max_attempts

    @property
    def stopping(self) -> bool:
        """Whether the worker was asked to stop: a long handler may leave early."""
        return self.watcher.is_stopping()


# Set inside a contextvars.Context that is made for one run and thrown away after it.
_current: ContextVar[JobContext | None] = ContextVar("queuey_sync_current_job", default=None)


def current_job() -> JobContext | None:
    """The context of the job that this thread is running, or None outside a handler."""
    return _current.get()


def set_current(context: JobContext) -> None:
    """Enter a job, for the rest of the `contextvars.Context` that this is called in."""
    _current.set(context)
