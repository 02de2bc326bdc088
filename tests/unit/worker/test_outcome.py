"""Every row of the outcome table, as `decide` has it."""

from datetime import timedelta

import pytest

from queuey_sync import DeadLetterCause, Envelope, RetryPolicy
from queuey_sync.pools.base import SUCCEEDED, Kind, Result
from queuey_sync.worker.outcome import ACK, RELEASE, Bury, Decision, Defer, Retry, decide

NONE = RetryPolicy.none()
FIXED = RetryPolicy.fixed(3, "2s")
OWN = RetryPolicy.fixed(5, "9s")
DAY = timedelta(days=1)
DECODE = "decode error: serialization error: x"
EXHAUSTED = DeadLetterCause.EXHAUSTED


def seconds(number: int) -> timedelta:
    """Short for the table."""
    return timedelta(seconds=number)


def failed(reason: str = "e", **values: object) -> Result:
    """A run that may be tried again."""
    return Result(kind=Kind.RETRYABLE, reason=reason, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "attempt", "policy", "decision"),
    [
        (SUCCEEDED, 1, NONE, ACK),
        (SUCCEEDED, 9, FIXED, ACK),
        (Result(kind=Kind.STOPPED), 3, FIXED, RELEASE),
        (
            Result(kind=Kind.UNHANDLED),
            1,
            FIXED,
            Bury(DeadLetterCause.NO_HANDLER, "no handler for job type `t`", None),
        ),
        (
            Result(kind=Kind.UNDECODABLE, reason=DECODE),
            1,
            FIXED,
            Bury(DeadLetterCause.DECODE, DECODE, 3),
        ),
        (
            Result(kind=Kind.FATAL, reason="e"),
            1,
            FIXED,
            Bury(DeadLetterCause.FATAL, "fatal error: e", 3),
        ),
        (
            Result(kind=Kind.FATAL, reason="e", policy=OWN),
            1,
            FIXED,
            Bury(DeadLetterCause.FATAL, "fatal error: e", 5),
        ),
        (Result(kind=Kind.DEFERRED, reason="later", delay=DAY), 1, NONE, Defer(DAY, "later")),
        (Result(kind=Kind.DEFERRED, reason="later", delay=DAY), 9, FIXED, Defer(DAY, "later")),
        (failed(), 1, FIXED, Retry(seconds(2), "e")),
        (failed(), 2, FIXED, Retry(seconds(2), "e")),
        (
            failed(),
            3,
            FIXED,
            Bury(EXHAUSTED, "max attempts (3) exhausted after attempt 3: e", 3),
        ),
        (
            failed(),
            4_294_967_295,
            FIXED,
            Bury(EXHAUSTED, "max attempts (3) exhausted after attempt 4294967295: e", 3),
        ),
        (failed(), 1, NONE, Bury(EXHAUSTED, "max attempts (1) exhausted after attempt 1: e", 1)),
        (failed(policy=OWN), 4, NONE, Retry(seconds(9), "e")),
        (
            failed(policy=NONE),
            2,
            FIXED,
            Bury(EXHAUSTED, "max attempts (1) exhausted after attempt 2: e", 1),
        ),
    ],
)
def test_the_table(result: Result, attempt: int, policy: RetryPolicy, decision: Decision) -> None:
    """Each result has exactly the decision, and the reason, of its row."""
    envelope = Envelope.decode(_body(attempt))
    assert decision == decide(result, envelope, policy)


def test_every_kind_of_result_has_a_decision() -> None:
    """No kind is forgotten."""
    for kind in Kind:
        decision = decide(Result(kind=kind), Envelope.decode(_body(1)), FIXED)
        assert isinstance(decision, Decision)


def test_a_deferral_too_long_for_the_backend_is_the_handlers_error() -> None:
    """It is judged by the policy as a failed attempt, and never left unsettled."""
    result = Result(kind=Kind.DEFERRED, reason="later", delay=30 * DAY)
    decision = decide(result, Envelope.decode(_body(1)), FIXED, longest_delay=20 * DAY)
    assert isinstance(decision, Retry)
    assert decision.reason.startswith("handler panicked: a delay of 2592000s is longer")
    decision = decide(result, Envelope.decode(_body(3)), FIXED, longest_delay=20 * DAY)
    assert isinstance(decision, Bury)
    assert decide(result, Envelope.decode(_body(1)), FIXED, longest_delay=30 * DAY) == Defer(
        30 * DAY, "later"
    )


def test_a_policy_of_the_payload_too_long_for_the_backend_buries_the_job() -> None:
    """A delay that cannot be held is never shortened: the job is given up on, with both reasons."""
    result = failed("broken", policy=RetryPolicy.fixed(5, "30d"))
    decision = decide(result, Envelope.decode(_body(1)), FIXED, longest_delay=20 * DAY)
    assert isinstance(decision, Bury)
    assert decision.reason.startswith("handler panicked: a delay of 2592000s is longer")
    assert decision.reason.endswith("after broken")


def test_jitter_comes_from_the_given_source() -> None:
    """The draw is an argument, so the decision is a function of its arguments alone."""

    class Low:
        def uniform(self, a: float, b: float, /) -> float:
            return a

    policy = RetryPolicy.exponential(3, base="8s", jitter=True)
    decision = decide(failed(), Envelope.decode(_body(1)), policy, rng=Low())
    assert Retry(seconds(0), "e") == decision


def _body(attempt: int) -> bytes:
    return (
        b'{"job_id":"67e55044-10b1-426f-9247-bb680e5fe0c8","job_type":"t","queue":"q","attempt":'
        + str(attempt).encode()
        + b',"enqueued_at_ms":1700000000000,"payload":{}}'
    )
