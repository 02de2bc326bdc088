"""What is known of a job that was given up on, and the hook that hears of it first."""

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from queuey_sync.envelope import Envelope
from queuey_sync.jobs import Job, job_type_of
from queuey_sync.observe.escaping import traceback_lines

log = logging.getLogger(__name__)


class DeadLetterCause(enum.Enum):
    """Why a job was given up on."""

    NO_HANDLER = "no handler"
    DECODE = "decode"
    FATAL = "fatal"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that was given up on, as the dead-letter hook sees it."""

    envelope: Envelope
    """As delivered: its `attempt` is the attempt that failed."""
    cause: DeadLetterCause
    reason: str
    """The very text that goes to the dead-letter queue."""
    max_attempts: int | None
    """Of the policy that judged; None when no handler exists for the job type."""

    @classmethod
    def for_test(
        cls,
        job: Job[Any],
        *,
        cause: DeadLetterCause = DeadLetterCause.FATAL,
        reason: str = "fatal error: made by a test",
        attempts: int = 1,
        max_attempts: int | None = None,
    ) -> Self:
        """What to call a dead-letter hook with in a test.

        Args:
            job: The job that was given up on.
            cause: Why.
            reason: The same in words.
            attempts: How many attempts were made.
            max_attempts: How many there might have been; by default what the job's or its queue's
                policy allows.
        """
        job_type = job_type_of(job)
        envelope = Envelope.new(job_type.name, job_type.queue.full_name, job_type.encode(job))
        for _ in range(1, attempts):
            envelope = envelope.next_attempt()
        if max_attempts is None:
            max_attempts = job_type.policy.max_attempts
        return cls(envelope, cause, reason, max_attempts)

    @property
    def attempts(self) -> int:
        """How many attempts were made, the failed one included."""
        return self.envelope.attempt

    @property
    def reached_handler(self) -> bool:
        """Whether a handler saw the job at all."""
        return self.cause in (DeadLetterCause.FATAL, DeadLetterCause.EXHAUSTED)


DeadLetterHook = Callable[[DeadLetter], object]
"""Called before the job is settled. It cannot veto, and may be called twice for one job."""


def call_hook(hook: DeadLetterHook | None, dead: DeadLetter) -> None:
    """Call the hook; whatever it raises is logged, and the job is dead-lettered anyway."""
    if hook is None:
        return
    try:
        hook(dead)
    except BaseException as error:  # noqa: BLE001 - a hook may raise anything and stop nothing
        job, trace = dead.envelope.job_id, traceback_lines(error)
        log.error("on_dead_letter failed for job %s%s", job, trace)
