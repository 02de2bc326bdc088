"""Tests of retry policies: what the constructors refuse, and the arithmetic of the waits."""

import dataclasses
import math
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_sync.errors import ConfigurationError
from queuey_sync.retry import RetryPolicy

LAST_ATTEMPT = 2**32 - 1


def steady(**options: Any) -> RetryPolicy:
    """An exponential policy without jitter."""
    return RetryPolicy.exponential(5, jitter=False, **options)


@pytest.mark.parametrize(
    ("policy", "attempts"),
    [(RetryPolicy.exponential(), 3), (RetryPolicy.exponential(max_attempts=5), 5)],
)
def test_b3_defaults_are_exponential(policy: RetryPolicy, attempts: int) -> None:
    """B3: three attempts, base 1 s, factor 2, cap 5 minutes, jitter on."""
    expected = RetryPolicy(attempts, timedelta(seconds=1), 2.0, timedelta(minutes=5), jitter=True)
    assert expected == policy


@pytest.mark.parametrize("attempts", [0, -1, 2**32, "3", 3.0, True, None])
@pytest.mark.parametrize(
    "make", [RetryPolicy.exponential, lambda attempts: RetryPolicy.fixed(attempts, "1s")]
)
def test_b3_attempts_are_a_count(make: Callable[[Any], RetryPolicy], attempts: object) -> None:
    """B3: max_attempts is an integer from 1 to 4294967295, for both kinds of backoff."""
    with pytest.raises(ConfigurationError, match="max_attempts"):
        make(attempts)


@pytest.mark.parametrize("attempts", [1, 2**32 - 1])
def test_b3_the_bounds_of_the_count_are_accepted(attempts: int) -> None:
    """B3: the least and the greatest number of attempts are."""
    assert attempts == RetryPolicy.fixed(attempts, "1s").max_attempts


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda make: make.fixed(3), "delay"),
        (lambda make: make.exponential(3, delay="1s"), "delay"),
        (lambda make: make.none(delay="1s"), "delay"),
        *[
            (
                lambda make, name=name, kind=kind: getattr(make, kind[0])(*kind[1:], **{name: 1}),
                name,
            )
            for name in ("base", "factor", "max", "jitter")
            for kind in (("fixed", 3, "1s"), ("none",))
        ],
    ],
)
def test_b3_each_backoff_has_its_own_options(call: Callable[[Any], object], key: str) -> None:
    """B3: an option of another kind of backoff, or a missing delay, is an error that names it."""
    with pytest.raises(TypeError, match=key):
        call(RetryPolicy)


def test_b3_there_is_no_linear_backoff() -> None:
    """B3: a kind of backoff that does not exist is an error that names it."""
    with pytest.raises(AttributeError, match="linear"):
        _ = RetryPolicy.linear  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"base": "0s"}, "base"),
        ({"base": "1x"}, "base"),
        ({"base": None}, "base"),
        ({"max": 0}, "max"),
        ({"base": "10m"}, "base"),
        ({"base": "2s", "max": "1s"}, "base"),
        ({"factor": 0}, "factor"),
        ({"factor": -1.5}, "factor"),
        ({"factor": math.inf}, "factor"),
        ({"factor": math.nan}, "factor"),
        ({"factor": "2"}, "factor"),
        ({"factor": True}, "factor"),
        ({"factor": 10**400}, "factor"),
        ({"jitter": 1}, "jitter"),
    ],
)
def test_exponential_options_are_checked(options: dict[str, Any], key: str) -> None:
    """Every option out of its range is a ConfigurationError whose text begins with the option."""
    with pytest.raises(ConfigurationError, match=f"^{key}:"):
        RetryPolicy.exponential(**options)


@pytest.mark.parametrize("delay", ["0ms", 0, timedelta(0), "soon", -1, None])
def test_a_fixed_delay_is_longer_than_zero(delay: Any) -> None:
    """No wait at all is spelled by the number of attempts, not by a delay of zero."""
    with pytest.raises(ConfigurationError, match=r"^delay:"):
        RetryPolicy.fixed(3, delay)


def test_an_integer_factor_is_accepted() -> None:
    """A factor of 3 is a factor of 3.0, and a base equal to the cap is legal."""
    policy = steady(base="1s", factor=3, max="1s")
    assert (3.0, timedelta(seconds=1)) == (policy.factor, policy.delay_for(4))


@pytest.mark.parametrize(
    ("options", "attempt", "seconds"),
    [
        *[({"max": "600s"}, n, wait) for n, wait in enumerate([1, 1, 2, 4, 8])],
        *[({"max": "10s"}, n, 10) for n in (5, 50, LAST_ATTEMPT)],
        *[({"base": "250ms", "factor": 1.5}, n, wait) for n, wait in ((1, 0.25), (2, 0.375))],
        ({"factor": 0.5}, 2, 0.5),
        ({"factor": 0.5}, LAST_ATTEMPT, 0),
        ({"factor": 1}, LAST_ATTEMPT, 1),
        ({"base": "999999999d", "max": "999999999d"}, LAST_ATTEMPT, 999_999_999 * 86_400),
    ],
)
def test_c1_c2_waits(options: dict[str, Any], attempt: int, seconds: float) -> None:
    """C1, C2: base times factor to the power of the retries so far, capped, without an overflow."""
    assert timedelta(seconds=seconds) == steady(**options).delay_for(attempt)


@pytest.mark.parametrize(("attempt", "longest"), [(3, 4.0), (99, 30.0)])
def test_c3_jitter_spreads_the_waits(attempt: int, longest: float) -> None:
    """C3: draws lie between zero and the computed wait, and are spread over all of it."""
    policy = RetryPolicy.exponential(base="1s", max="30s")
    rng = random.Random(7)
    draws = [policy.delay_for(attempt, rng).total_seconds() for _ in range(2000)]
    assert all(0 <= draw <= longest for draw in draws)
    assert min(draws) < longest / 4
    assert max(draws) > longest * 3 / 4


@pytest.mark.parametrize(("end", "seconds"), [("low", 0), ("high", 4)])
def test_c3_both_ends_of_the_jitter_are_possible(end: str, seconds: int) -> None:
    """C3: no wait at all and the whole wait are both drawn, the cap included."""

    class Edge:
        def uniform(self, a: float, b: float, /) -> float:
            return a if end == "low" else b

    policy = RetryPolicy.exponential(max="4s")
    assert timedelta(seconds=seconds) == policy.delay_for(50, Edge())


def test_jitter_needs_no_source_of_randomness() -> None:
    """Without a source of its own a policy draws from the module ``random``, which is one too."""
    policy = RetryPolicy.exponential()
    assert policy.delay_for(1) <= timedelta(seconds=1)
    assert policy.delay_for(1, random) <= timedelta(seconds=1)


@pytest.mark.parametrize(
    ("policy", "attempt", "wait"),
    [
        (RetryPolicy.fixed(3, "2s"), 0, timedelta(seconds=2)),
        (RetryPolicy.fixed(3, "2s"), 1, timedelta(seconds=2)),
        (RetryPolicy.fixed(3, "2s"), 2, timedelta(seconds=2)),
        (RetryPolicy.fixed(3, "2s"), 3, None),
        (RetryPolicy.fixed(3, "2s"), 4, None),
        (RetryPolicy.fixed(3, "2s"), LAST_ATTEMPT, None),
        (RetryPolicy.fixed(1, "2s"), 1, None),
        (RetryPolicy.none(), 1, None),
        (steady(), 4, timedelta(seconds=8)),
        (steady(), 5, None),
    ],
)
def test_c5_decisions(policy: RetryPolicy, attempt: int, wait: timedelta | None) -> None:
    """C5: retry after the wait while attempts are left, then give up."""
    assert wait == policy.decide(attempt)


@given(
    attempt=st.integers(0, LAST_ATTEMPT),
    factor=st.floats(1e-300, 1e300),
    cap=st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta.max),
    jitter=st.booleans(),
)
def test_the_arithmetic_never_raises(
    attempt: int, factor: float, cap: timedelta, jitter: bool
) -> None:
    """Whatever the policy and the attempt, the wait lies between zero and the cap."""
    policy = RetryPolicy.exponential(base="1s", factor=factor, max=cap, jitter=jitter)
    assert timedelta(0) <= policy.delay_for(attempt) <= cap


def test_policies_are_frozen_values() -> None:
    """Equal policies are equal, can be keys, and cannot be changed."""
    policy = RetryPolicy.fixed(2, "1s")
    assert {policy} == {RetryPolicy.fixed(2, timedelta(seconds=1))}
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.max_attempts = 9  # type: ignore[misc]
