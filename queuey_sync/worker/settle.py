"""Carries a `Decision` out on a delivery, tells the hook and the log, and counts what failed.

It decides nothing (`outcome.py` does) and knows no backend beyond `Delivery`. A settle that fails
is logged at ERROR and counted; the job then comes back from the broker and runs again.
"""

import logging
import threading
from collections.abc import Callable, Mapping

from queuey_sync.backends.base import Delivery
from queuey_sync.durations import format_duration
from queuey_sync.envelope import Envelope
from queuey_sync.errors import SettleError
from queuey_sync.observe.escaping import LONGEST_NAME, one_line, traceback_lines
from queuey_sync.worker.dead_letters import DeadLetter, DeadLetterHook, call_hook
from queuey_sync.worker.outcome import Ack, Bury, Decision, Defer, Release, Retry
from queuey_sync.worker.tally import Tally

log = logging.getLogger(__name__)


class Settler:
    """Settles deliveries, from any thread.

    Args:
        top_levels: The highest priority level of each queue, by name.
        hook: Hears of dead letters.
        unsettled: Called with a delivery that could not be settled.
    """

    def __init__(
        self,
        top_levels: Mapping[str, int],
        hook: DeadLetterHook | None,
        unsettled: Callable[[Delivery], None],
    ) -> None:
        self._top_levels = top_levels
        self._hook = hook
        self._unsettled = unsettled
        self.tally = Tally()
        """What became of every delivery."""
        self._lock = threading.Lock()
        self._failures = 0
        """Guarded by `_lock`."""

    @property
    def failures(self) -> int:
        """How many settling calls failed so far."""
        with self._lock:
            return self._failures

    def settle(
        self, decision: Decision, delivery: Delivery, envelope: Envelope, traceback: str = ""
    ) -> None:
        """Carry a decision out. Raises nothing."""
        _log_outcome(decision, envelope, traceback)
        if isinstance(decision, Bury):
            dead = DeadLetter(envelope, decision.cause, decision.reason, decision.max_attempts)
            call_hook(self._hook, dead)
        try:
            self._carry_out(decision, delivery, envelope)
        except Exception as error:  # noqa: BLE001 - whatever a backend raises, the worker goes on
            self.tally.finish(delivery.queue)
            self.count_failure(_OPERATIONS[type(decision)], envelope, error)
            if not isinstance(error, SettleError):  # else it is back at the broker already
                self._unsettled(delivery)
        else:
            held = decision.delay if isinstance(decision, Retry | Defer) else None
            self.tally.finish(delivery.queue, _ENDS.get(type(decision)), held)

    def bury(self, delivery: Delivery) -> None:
        """Put a body away that is no envelope."""
        delivery.bury()
        self.tally.finish(delivery.queue, "dead")

    def leave(self, delivery: Delivery, error: Exception) -> None:
        """Give up on a delivery that could not be handled; it comes back some time."""
        text = "a delivery of %s was left unsettled and will come back%s"
        log.error(text, delivery.queue, traceback_lines(error))
        self.tally.finish(delivery.queue)

    def _carry_out(self, decision: Decision, delivery: Delivery, envelope: Envelope) -> None:
        match decision:
            case Ack():
                delivery.ack()
            case Retry():
                delivery.retry(envelope.next_attempt(), decision.delay)
            case Defer():
                level = self._top_levels.get(envelope.queue, 0)
                delivery.defer(envelope.deferred(level), decision.delay)
            case Bury():
                delivery.dead_letter(decision.reason)
            case Release():
                delivery.release()

    def count_failure(self, operation: str, envelope: Envelope, error: Exception) -> None:
        """Count and log a settling call that failed, at once or later."""
        with self._lock:
            self._failures += 1
        log.error(
            "%s failed for job %s (%s) on %s, so it will run again: %s",
            operation,
            envelope.job_id,
            one_line(envelope.job_type, LONGEST_NAME),
            one_line(envelope.queue, LONGEST_NAME),
            one_line(error),
            extra=_fields(envelope),
        )


_OPERATIONS: dict[type, str] = {
    Ack: "ack",
    Retry: "retry",
    Defer: "defer",
    Bury: "dead_letter",
    Release: "release",
}


_ENDS: dict[type, str] = {Ack: "succeeded", Retry: "retried", Defer: "deferred", Bury: "dead"}
"""The field of `Counts` for a decision; none for a job that just goes back."""


def _log_outcome(decision: Decision, envelope: Envelope, traceback: str) -> None:
    level, text = _describe(decision)
    if not log.isEnabledFor(level):
        return
    log.log(
        level,
        "job %s (%s) on %s, attempt %d: %s%s",
        envelope.job_id,
        one_line(envelope.job_type, LONGEST_NAME),
        one_line(envelope.queue, LONGEST_NAME),
        envelope.attempt,
        one_line(text),
        traceback_lines(traceback),
        extra=_fields(envelope),
    )


def _describe(decision: Decision) -> tuple[int, str]:
    match decision:
        case Ack():
            return logging.DEBUG, "succeeded"
        case Retry(delay, reason):
            return logging.WARNING, f"failed, next attempt in {format_duration(delay)}: {reason}"
        case Defer(delay, reason):
            return logging.INFO, f"deferred for {format_duration(delay)}: {reason}"
        case Bury(_, reason):
            return logging.WARNING, f"dead-lettered: {reason}"
        case Release():
            return logging.INFO, "given back to its queue, since the worker is stopping"


def _fields(envelope: Envelope) -> dict[str, object]:
    """The fields of a record: as they came, for whatever writes fields escapes them, but no longer.

    An envelope holds no lone surrogate, so each of them can be encoded.
    """
    return {
        "job_id": str(envelope.job_id),
        "job_type": envelope.job_type[:LONGEST_NAME],
        "queue": envelope.queue[:LONGEST_NAME],
        "attempt": envelope.attempt,
    }
