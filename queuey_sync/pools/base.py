"""The seam between a slot and the place where its handlers run: `Attempt` in, `Result` out.

A pool knows how to run one attempt and how to say what happened. It knows nothing of queues,
brokers or settling; `worker/outcome.py` decides what a result means for the job. `threads.py` is
the example to read; `processes.py` is what the seam is for.
"""

import enum
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from queuey_sync.context import JobContext
from queuey_sync.durations import format_duration
from queuey_sync.handlers import Handler, Handlers
from queuey_sync.retry import RetryPolicy

NEVER: AbstractContextManager[object] = nullcontext()
"""The soft limit of an attempt that has none."""


@dataclass(slots=True)
class Attempt:
    """One run of one job: what a pool needs to make it."""

    handler: Handler
    payload: bytes
    context: JobContext
    """As the handler sees it; a policy of the payload's own may still change `max_attempts`."""
    time_limit: timedelta | None = None
    soft_limit: timedelta | None = None
    interrupt: AbstractContextManager[object] = NEVER
    """Entered around the handler alone: raises `SoftTimeout` in it when the soft limit is over."""


class Kind(enum.Enum):
    """What a run came to."""

    SUCCEEDED = "succeeded"
    RETRYABLE = "retryable"
    FATAL = "fatal"
    DEFERRED = "deferred"
    UNDECODABLE = "undecodable"
    UNHANDLED = "unhandled"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run came to, in plain values that can cross to another process."""

    kind: Kind
    reason: str = ""
    """The text of the error alone; empty for a success."""
    delay: timedelta = timedelta(0)
    """How long a deferred job waits."""
    policy: RetryPolicy | None = None
    """The payload's own retry policy, if its handler has one."""
    traceback: str = ""
    """For an error that nobody expected: where it came from."""


SUCCEEDED = Result(kind=Kind.SUCCEEDED)
STOPPED = Result(kind=Kind.STOPPED)


def timed_out(limit: timedelta, policy: RetryPolicy | None = None) -> Result:
    """The result of a run that went over its time limit.

    >>> timed_out(timedelta(milliseconds=500)).reason
    'job timed out after 500ms'
    """
    text = f"job timed out after {format_duration(limit)}"
    return Result(kind=Kind.RETRYABLE, reason=text, policy=policy)


class Slot(Protocol):
    """Where the handlers of one runner run. Owner: that runner's thread."""

    def ready(self) -> None:
        """Be able to run an attempt at once; called before a delivery is taken.

        Raises:
            StartError: It cannot.
        """

    def run(self, attempt: Attempt) -> Result:
        """Run one attempt to its end. Raises nothing that a handler raised.

        Raises:
            StartError: There is nothing left to run it in; the handler was not called.
        """
        ...

    def close(self) -> None:
        """Let go of what the slot holds; the runner takes no more. Bounded in time."""


class Pool(Protocol):
    """The slots of one worker."""

    unit: str
    """What one slot is, in the singular and the plural of the log: ``thread`` or ``process``."""
    enforces_limits: bool
    """Whether `Slot.run` keeps the limits of an attempt; if not, the watchdog does."""

    def default_concurrency(self, prefetch: int) -> int:
        """How many slots to have when nobody said, for queues with this sum of prefetches."""
        ...

    def start(self) -> None:
        """Prepare what all slots share; called once, on the thread of `Worker.run`.

        Raises:
            StartError: It cannot be prepared.
        """

    def slot(self) -> Slot:
        """A new slot; called by its runner."""
        ...

    def stop(self) -> None:
        """Have the running handlers see that the worker is stopping."""

    def abandon(self) -> bool:
        """End the running handlers now, if that can be done; their results are `STOPPED`."""
        ...


PoolFactory = Callable[[Handlers[Any]], Pool]
"""Makes the pool of a worker. Raises `ConfigurationError` for handlers that cannot run in it."""
