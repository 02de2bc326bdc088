"""The seam between a slot and the place where its handlers run: `Attempt` in, `Result` out.

A pool knows how to run one attempt and how to say what happened. It knows nothing of queues,
brokers or settling; `worker/outcome.py` decides what a result means for the job.
"""

import enum
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from queuey_sync.context import JobContext
from queuey_sync.handlers import Handler
from queuey_sync.retry import RetryPolicy


@dataclass(slots=True)
class Attempt:
    """One run of one job: what a pool needs to make it."""

    handler: Handler
    payload: bytes
    context: JobContext
    """As the handler sees it; a policy of the payload's own may still change `max_attempts`."""


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


class Pool(Protocol):
    """Runs attempts; called by the slots' runners, each with one attempt at a time."""

    enforces_time_limit: bool
    """Whether `run` ends an attempt at its deadline; if not, the watchdog settles it."""

    def run(self, attempt: Attempt) -> Result:
        """Run one attempt to its end. Raises nothing that a handler raised."""
        ...
