"""Waiting for a condition, never for a length of time.

Tests must not sleep and hope: they name what has to become true and when to give up.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.01


def eventually(condition: Callable[[], T], timeout: float = 10.0, message: str = "") -> T:
    """Call `condition` until what it returns is true, and return that.

    Args:
        condition: Asked again and again; an `AssertionError` that it raises counts as "not yet", so
            that it may hold plain asserts and end with ``return True``.
        timeout: Seconds after which to give up.
        message: What was waited for, for the error; by default the condition's name.

    Raises:
        AssertionError: The condition was still false at the deadline; says what it last gave.
    """
    deadline = time.monotonic() + timeout
    while True:
        last: object
        try:
            result = condition()
        except AssertionError as error:
            last = error
        else:
            if result:
                return result
            last = result
        if time.monotonic() >= deadline:
            waited_for = message or getattr(condition, "__qualname__", repr(condition))
            raise AssertionError(f"not within {timeout} s: {waited_for}; last seen: {last!r}")
        time.sleep(_POLL_SECONDS)
