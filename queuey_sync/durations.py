"""Durations: what users write, and the integers that the rest of the code counts with.

Users write a ``timedelta``, text such as ``"30s"``, or a number of seconds. Inside, a duration is a
``timedelta`` (whole microseconds) or an integer of milliseconds whose name ends in ``_ms``: never a
float, because ``ceil(seconds * 1000)`` is wrong for one whole millisecond in 170.
"""

import math
import re
from datetime import timedelta

Duration = timedelta | str | int | float
"""What a public argument that is a length of time accepts."""

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_LITERAL = re.compile(r"\s*([0-9]+)\s*(ms|s|m|h|d)?\s*", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)


def parse_duration(value: Duration, key: str = "duration") -> timedelta:
    """Turn what a user wrote into a ``timedelta`` that is zero or longer.

    Args:
        value: A ``timedelta``; text of digits and an optional unit out of ``ms s m h d`` (none
            means seconds); or a finite number of seconds.
        key: The name of the argument, for the error.

    Raises:
        ValueError: The text is no duration, or the value is negative, not finite or too long.
        TypeError: The value is of another type.

    >>> parse_duration("2 m")
    datetime.timedelta(seconds=120)
    >>> parse_duration(0.5)
    datetime.timedelta(microseconds=500000)
    """
    try:
        duration = _to_timedelta(value, key)
    except OverflowError:
        raise ValueError(f"{key}: {value!r} is too long") from None
    if duration < timedelta(0):
        raise ValueError(f"{key}: {value!r} is negative")
    return duration


def _to_timedelta(value: Duration, key: str) -> timedelta:
    match value:
        case timedelta():
            return value
        case str():
            literal = _LITERAL.fullmatch(value)
            if literal is None:
                raise ValueError(
                    f"{key}: {value!r} is no duration; write digits and a unit, as in 500ms or 30s"
                )
            digits, unit = literal.groups()
            return int(digits) * _UNITS[unit or "s"]
        case bool():
            pass
        case int():
            return timedelta(seconds=value)
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{key}: {value!r} is no finite number of seconds")
            return timedelta(seconds=value)
    raise TypeError(
        f"{key}: expected a timedelta, text such as '30s' or a number of seconds, got {value!r}"
    )


def ceil_ms(duration: timedelta) -> int:
    """Whole milliseconds, rounded up: nothing that waits is released early.

    >>> ceil_ms(timedelta(microseconds=1001))
    2
    """
    return -(-(duration // _MICROSECOND) // 1_000)


def format_duration(duration: timedelta) -> str:
    """The spelling used inside error texts: seconds from 1 s up, else ms, else µs.

    >>> format_duration(timedelta(minutes=1.5)), format_duration(timedelta(microseconds=1500))
    ('90s', '1.5ms')
    """
    micros = duration // _MICROSECOND
    if micros >= 1_000_000:
        return _decimal(micros, 1_000_000) + "s"
    if micros >= 1_000:
        return _decimal(micros, 1_000) + "ms"
    return f"{micros}µs" if micros else "0ns"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"
