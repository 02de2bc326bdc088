"""Tests of what a dead-letter hook is given, as far as it can be made without a worker."""

from queuey_sync import DeadLetter, DeadLetterCause
from tests.support.shop import Charge, Chase


def test_a_dead_letter_for_a_test_fits_its_job() -> None:
    """A hook can be called with one that has the job, its queue and its policy."""
    dead = DeadLetter.for_test(Charge("ada"))
    assert ("shop.Charge", "shop.orders", b'{"customer":"ada"}') == (
        dead.envelope.job_type,
        dead.envelope.queue,
        bytes(dead.envelope.payload),
    )
    assert (1, 3, DeadLetterCause.FATAL) == (dead.attempts, dead.max_attempts, dead.cause)


def test_a_dead_letter_for_a_test_can_be_any() -> None:
    """Cause, reason and counts are as the test says."""
    cause = DeadLetterCause.EXHAUSTED
    dead = DeadLetter.for_test(
        Chase(1), cause=cause, reason="no network", attempts=5, max_attempts=5
    )
    assert (cause, "no network", 5, 5) == (
        dead.cause,
        dead.reason,
        dead.attempts,
        dead.max_attempts,
    )
    assert dead.reached_handler
