"""What happens to a job after a run: the only place where that is decided. Pure.

`decide` turns a `Result` into a `Decision`, without a clock, a broker or any effect; `settle.py`
carries the decision out. Everything that a dead letter's reason can say is written in this module.
"""

from dataclasses import dataclass
from datetime import timedelta

from queuey_sync.durations import format_duration
from queuey_sync.envelope import Envelope
from queuey_sync.pools.base import Kind, Result
from queuey_sync.retry import RandomSource, RetryPolicy
from queuey_sync.worker.dead_letters import DeadLetterCause


@dataclass(frozen=True, slots=True)
class Ack:
    """The job is done."""


@dataclass(frozen=True, slots=True)
class Release:
    """The job goes back to its queue; the run does not count."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The job runs again, as its next attempt, after a delay."""

    delay: timedelta
    reason: str


@dataclass(frozen=True, slots=True)
class Defer:
    """The same attempt runs again after a delay, ahead of ordinary work."""

    delay: timedelta
    reason: str


@dataclass(frozen=True, slots=True)
class Bury:
    """The job is given up on."""

    cause: DeadLetterCause
    reason: str
    max_attempts: int | None


Decision = Ack | Release | Retry | Defer | Bury

ACK = Ack()
RELEASE = Release()


def decide(
    result: Result,
    envelope: Envelope,
    policy: RetryPolicy,
    *,
    longest_delay: timedelta | None = None,
    rng: RandomSource | None = None,
) -> Decision:
    """Decide what happens to a job.

    Args:
        result: What its run came to.
        envelope: The job as it was delivered.
        policy: The retry policy that was configured; the payload's own, in the result, comes first.
        longest_delay: What the backend can hold. A handler that asks for more made an error.
        rng: Draws the jitter.
    """
    match result.kind:
        case Kind.SUCCEEDED:
            return ACK
        case Kind.STOPPED:
            return RELEASE
        case Kind.UNHANDLED:
            reason = f"no handler for job type `{envelope.job_type}`"
            return Bury(DeadLetterCause.NO_HANDLER, reason, None)
        case Kind.UNDECODABLE:
            return Bury(DeadLetterCause.DECODE, result.reason, policy.max_attempts)
        case Kind.FATAL:
            judge = result.policy or policy
            reason = f"fatal error: {result.reason}"
            return Bury(DeadLetterCause.FATAL, reason, judge.max_attempts)
        case Kind.DEFERRED:
            if not _too_long(result.delay, longest_delay):
                return Defer(result.delay, result.reason)
            reason = _panicked_for(result.delay, longest_delay)
            return _judge(policy, envelope, reason, longest_delay, rng)
        case Kind.RETRYABLE:
            judge = result.policy or policy
            return _judge(judge, envelope, result.reason, longest_delay, rng)


def _judge(
    policy: RetryPolicy,
    envelope: Envelope,
    reason: str,
    longest_delay: timedelta | None,
    rng: RandomSource | None,
) -> Decision:
    delay = policy.decide(envelope.attempt, rng)
    if delay is None:
        count = f"max attempts ({policy.max_attempts}) exhausted after attempt {envelope.attempt}"
        return Bury(DeadLetterCause.EXHAUSTED, f"{count}: {reason}", policy.max_attempts)
    if _too_long(delay, longest_delay):
        fault = _panicked_for(delay, longest_delay)
        return Bury(DeadLetterCause.EXHAUSTED, f"{fault}; after {reason}", policy.max_attempts)
    return Retry(delay, reason)


def _too_long(delay: timedelta, longest: timedelta | None) -> bool:
    return longest is not None and delay > longest


def _panicked_for(delay: timedelta, longest: timedelta | None) -> str:
    limit = format_duration(longest or delay)
    return (
        f"handler panicked: a delay of {format_duration(delay)} is longer than the limit of {limit}"
    )
