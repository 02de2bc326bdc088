"""What is known of a job that was given up on, and the hook that hears of it first."""

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass

from queuey_sync.envelope import Envelope
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
