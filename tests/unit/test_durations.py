"""Tests of durations: what users may write, and the text that errors show."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_sync.durations import ceil_ms, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("1s", 1),
        ("2m", 120),
        ("2 m", 120),
        ("1h", 3600),
        ("7d", 604800),
        ("30", 30),
        ("  5 s ", 5),
        ("5 ms", 0.005),
        ("0", 0),
    ],
)
def test_b1_text_has_digits_and_perhaps_a_unit(text: str, seconds: float) -> None:
    """B1: digits with an optional unit, and blanks around both; no unit means seconds."""
    assert timedelta(seconds=seconds) == parse_duration(text)


@pytest.mark.parametrize(
    "text",
    ["", " ", "s", "1x", "1.5s", "-1s", "+2s", "1 m s", "ms1", "1e3", "1_000", "٣s", "²s", "1S"],
)
def test_other_text_is_refused(text: str) -> None:
    """No sign, no fraction, no second unit, no digit but ASCII; the error names the key."""
    with pytest.raises(ValueError, match=r"wait: .* is no duration"):
        parse_duration(text, "wait")


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        (timedelta(minutes=2), timedelta(minutes=2)),
        (30, timedelta(seconds=30)),
        (0, timedelta(0)),
        (2.007, timedelta(milliseconds=2007)),
    ],
)
def test_timedeltas_and_seconds_are_durations(
    value: timedelta | float, duration: timedelta
) -> None:
    """A timedelta stays as it is, and a number is a number of seconds."""
    assert duration == parse_duration(value)


@pytest.mark.parametrize("value", [-1, -0.5, timedelta(microseconds=-1), math.nan, math.inf])
def test_negative_and_endless_durations_are_refused(value: timedelta | float) -> None:
    """What is negative or not finite is a ValueError that names the key."""
    with pytest.raises(ValueError, match="wait"):
        parse_duration(value, "wait")


@pytest.mark.parametrize("value", ["18446744073709551616ms", "9" * 30 + "d", 10**30, 1e30])
def test_endlessly_long_durations_are_refused(value: str | float) -> None:
    """What no timedelta can hold, or no 64-bit count of milliseconds, is a ValueError."""
    with pytest.raises(ValueError, match="too long"):
        parse_duration(value)


@pytest.mark.parametrize("value", [None, True, b"1s", [1]])
def test_other_types_are_refused(value: Any) -> None:
    """Anything else is a TypeError, True included, that shows what is accepted."""
    with pytest.raises(TypeError, match="wait: expected a timedelta"):
        parse_duration(value, "wait")


@given(st.integers(min_value=0, max_value=86_400_000))
def test_whole_milliseconds_survive(milliseconds: int) -> None:
    """Milliseconds come back exactly, which ``ceil(seconds * 1000)`` does not manage."""
    assert milliseconds == ceil_ms(parse_duration(f"{milliseconds}ms"))
    assert milliseconds == ceil_ms(parse_duration(milliseconds / 1000))


@pytest.mark.parametrize(("micros", "millis"), [(0, 0), (1, 1), (1000, 1), (1001, 2), (1999, 2)])
def test_milliseconds_are_rounded_up(micros: int, millis: int) -> None:
    """A part of a millisecond counts as a whole one."""
    assert millis == ceil_ms(timedelta(microseconds=micros))


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0ns"),
        (250, "250µs"),
        (1_500, "1.5ms"),
        (500_000, "500ms"),
        (999_999, "999.999ms"),
        (1_000_000, "1s"),
        (1_500_000, "1.5s"),
        (5_000_000, "5s"),
        (90_000_000, "90s"),
        (3_600_000_000, "3600s"),
        (2_500_500_000, "2500.5s"),
    ],
)
def test_durations_print_as_in_every_other_worker(micros: int, text: str) -> None:
    """Seconds, milliseconds or microseconds, without trailing zeros."""
    assert text == format_duration(timedelta(microseconds=micros))
