"""Retry policies: how often a job may run, and how long it waits between two attempts.

Pure values and arithmetic: no clock, no broker, and nothing of jobs or queues. The constructors
refuse what makes no sense; after that the arithmetic never raises, whatever the attempt. Which
policy judges a job is settled in `handlers.py`, and what follows from it in `worker/outcome.py`.
The checks at the end are shared with the other declarations.
"""

import math
import random
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from queuey_sync.durations import Duration, parse_duration
from queuey_sync.errors import ConfigurationError

_MICROSECOND = timedelta(microseconds=1)
_NO_WAIT = timedelta(0)
_MAX_ATTEMPTS = 2**32 - 1


class RandomSource(Protocol):
    """Where jitter comes from: a ``random.Random``, or the module ``random``."""

    def uniform(self, a: float, b: float, /) -> float:
        """A number between `a` and `b`, both possible."""
        ...


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a job may run, and how long it waits before it runs again.

    Build one with `none`, `fixed` or `exponential`; a policy is frozen and may be shared.

    Attributes:
        max_attempts: How often the job may run, the first time included.
        base: The wait after the first failed attempt.
        factor: What each further wait is multiplied by.
        max: No wait is longer than this.
        jitter: Whether to draw each wait evenly from zero up to the computed one, so that jobs that
            failed together do not come back together.

    >>> RetryPolicy.fixed(2, "30s").decide(1)
    datetime.timedelta(seconds=30)
    >>> RetryPolicy.fixed(2, "30s").decide(2) is None
    True
    """

    max_attempts: int
    base: timedelta
    factor: float
    max: timedelta
    jitter: bool

    @classmethod
    def none(cls) -> "RetryPolicy":
        """One attempt, and no second one."""
        return cls(1, _NO_WAIT, 1.0, _NO_WAIT, jitter=False)

    @classmethod
    def fixed(cls, max_attempts: int, delay: Duration) -> "RetryPolicy":
        """The same wait after each failed attempt.

        Args:
            max_attempts: How often the job may run, the first time included; 1 to 4294967295.
            delay: The wait, longer than zero.

        Raises:
            ConfigurationError: An argument is out of its range; the text names it.
        """
        check_integer(max_attempts, "max_attempts", 1, _MAX_ATTEMPTS)
        wait = check_duration(delay, "delay")
        return cls(max_attempts, wait, 1.0, wait, jitter=False)

    @classmethod
    def exponential(
        cls,
        max_attempts: int = 3,
        *,
        base: Duration = "1s",
        factor: float = 2.0,
        max: Duration = "5m",  # noqa: A002 - the option's name everywhere, in text and in code
        jitter: bool = True,
    ) -> "RetryPolicy":
        """Waits that grow: `base`, then `factor` times the wait before, never above `max`.

        Args:
            max_attempts: How often the job may run, the first time included; 1 to 4294967295.
            base: The wait after the first failed attempt, longer than zero and at most `max`.
            factor: Finite and above 0; below 1 the waits shrink.
            max: The longest wait; jitter does not exceed it either.
            jitter: Draw each wait evenly from zero up to the computed one.

        Raises:
            ConfigurationError: An argument is out of its range; the text names it.

        >>> policy = RetryPolicy.exponential(5, base="1s", max="6s", jitter=False)
        >>> [policy.delay_for(attempt).seconds for attempt in (1, 2, 3, 4)]
        [1, 2, 4, 6]
        """
        check_integer(max_attempts, "max_attempts", 1, _MAX_ATTEMPTS)
        first, longest = check_duration(base, "base"), check_duration(max, "max")
        if first > longest:
            raise ConfigurationError(f"base: {base!r} is longer than max, {max!r}")
        check_boolean(jitter, "jitter")
        return cls(max_attempts, first, _check_factor(factor), longest, jitter)

    def delay_for(self, failed_attempt: int, rng: RandomSource | None = None) -> timedelta:
        """The wait after this failed attempt, counted from 1; never raises.

        Args:
            failed_attempt: The attempt that failed; 0 counts as 1.
            rng: Where the jitter comes from; the module ``random`` by default.
        """
        longest = self.max // _MICROSECOND
        try:
            wait = self.base // _MICROSECOND * self.factor ** max(failed_attempt - 1, 0)
        except OverflowError:
            wait = longest
        wait = min(longest, wait)
        if self.jitter:
            wait = (rng or random).uniform(0, wait)
        return timedelta(microseconds=min(round(wait), longest))

    def decide(self, failed_attempt: int, rng: RandomSource | None = None) -> timedelta | None:
        """The wait before the next attempt, or None to give up.

        Args:
            failed_attempt: The attempt that failed, counted from 1.
            rng: Where the jitter comes from; the module ``random`` by default.
        """
        if failed_attempt >= self.max_attempts:
            return None
        return self.delay_for(failed_attempt, rng)


def check_integer(value: object, key: str, lowest: int, highest: int) -> None:
    """Refuse what is no integer of this range; True and False are no integers here."""
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise ConfigurationError(
            f"{key}: expected an integer from {lowest} to {highest}, got {value!r}"
        )


def check_boolean(value: object, key: str) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{key}: expected True or False, got {value!r}")


def check_duration(value: Duration, key: str, *, zero: bool = False) -> timedelta:
    """Parse a duration, which must be longer than zero unless `zero` allows it."""
    try:
        duration = parse_duration(value, key)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(str(error)) from None
    if not duration and not zero:
        raise ConfigurationError(f"{key}: {value!r} must be longer than zero")
    return duration


def check_text(value: object, key: str) -> None:
    """Refuse what is no text, blank, or cannot be printed: it could forge a line of a log."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ConfigurationError(
            f"{key}: expected text that is not blank and can be printed, got {value!r}"
        )


def check_policy(value: object, key: str) -> None:
    """Refuse what is no retry policy."""
    if not isinstance(value, RetryPolicy):
        raise ConfigurationError(
            f"{key}: expected RetryPolicy.none(), .fixed() or .exponential(), got {value!r}"
        )


def _check_factor(factor: object) -> float:
    if isinstance(factor, int | float) and not isinstance(factor, bool):
        with suppress(OverflowError):
            value = float(factor)
            if math.isfinite(value) and value > 0:
                return value
    raise ConfigurationError(f"factor: expected a finite number above 0, got {factor!r}")
