"""What a handler is told about its job: `JobContext`, and `current_job` for code further down.

One context is made for each run of a handler, so it is one cheap struct. It knows nothing of
brokers or settling. `pools/invoke.py` makes it and enters it; `observe/logs.py` reads it for log
records. `correlated` marks what is enqueued inside it; `producer.py` asks for the mark.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Self
from uuid import UUID, uuid4

import msgspec

from queuey_sync.durations import Duration
from queuey_sync.jobs import Job, job_type_of
from queuey_sync.retry import check_duration
from queuey_sync.shutdown import Shutdown, Watcher

_NO_ID = UUID(int=0)
_RUNNING = Watcher()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a handler: which job, which attempt, and how long it may take.

    Every field has a neutral default; `for_test` fills in those that depend on each other.

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

    @classmethod
    def for_test(
        cls,
        job: Job[Any] | type[Job[Any]] | None = None,
        *,
        attempt: int = 1,
        max_attempts: int | None = None,
        deferrals: int = 0,
        age: Duration = 0,
        correlation_id: str | None = None,
        stopping: bool = False,
    ) -> Self:
        """What to call a handler with in a test: ``send_email(job, JobContext.for_test(job))``.

        Args:
            job: Which job, or of which class; it tells type, queue and policy.
            attempt: Which attempt this is.
            max_attempts: How many there may be; by default what the job's or its queue's policy
                allows, and one without a job.
            deferrals: How often it was deferred.
            age: How long ago it was enqueued.
            correlation_id: The mark of the enqueuing code.
            stopping: Whether the worker is asked to stop.

        >>> JobContext.for_test(attempt=3, max_attempts=3).is_last_attempt
        True
        """
        job_type = None if job is None else job_type_of(job)
        if max_attempts is None:
            max_attempts = job_type.policy.max_attempts if job_type else 1
        shutdown = Shutdown()
        if stopping:
            shutdown.stop()
        age_ms = check_duration(age, "age", zero=True) // timedelta(milliseconds=1)
        return cls(
            job_id=uuid4(),
            job_type=job_type.name if job_type else "",
            queue=job_type.queue.full_name if job_type else "",
            attempt=attempt,
            max_attempts=max_attempts,
            deferrals=deferrals,
            enqueued_at_ms=_now_ms() - age_ms,
            correlation_id=correlation_id,
            watcher=shutdown.watcher(),
        )

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


# Reset where it was set; each thread and each coroutine of a caller has its own.
_given: ContextVar[str | None] = ContextVar("queuey_sync_correlation_id", default=None)


@contextmanager
def correlated(correlation_id: str | None) -> Iterator[None]:
    """Give this correlation id to each job that is enqueued inside without one of its own.

    Args:
        correlation_id: Any text; None changes nothing.

    >>> with correlated("request-7"):
    ...     correlation_id()
    'request-7'
    """
    token = _given.set(_given.get() if correlation_id is None else correlation_id)
    try:
        yield
    finally:
        _given.reset(token)


def correlation_id() -> str | None:
    """What a job that is enqueued here and now is marked with."""
    given = _given.get()
    if given is not None:
        return given
    job = current_job()
    return None if job is None else job.correlation_id
