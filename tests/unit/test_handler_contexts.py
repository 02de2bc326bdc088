"""Tests of what a handler may say of its second parameter, which is always given a context."""

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from queuey_sync.context import JobContext
from queuey_sync.errors import ConfigurationError
from queuey_sync.handlers import Handlers
from tests.support.shop import Charge, Chase, Shop


class Attempted(Protocol):
    """What a handler may want of a context."""

    @property
    def attempt(self) -> int:
        """The attempt."""
        ...


def anything(job: Charge, ctx: Any) -> object:
    """Take whatever it is."""
    return ctx


def wider(job: Charge, ctx: "object | int") -> object:
    """A context is an object."""
    return ctx


def by_protocol(job: Charge, ctx: Attempted) -> object:
    """A context has what the protocol asks for."""
    return ctx


def perhaps(job: Charge, ctx: JobContext | None) -> object:
    """A context, or nothing when it is called by hand."""
    return ctx


@pytest.mark.parametrize("function", [anything, wider, by_protocol, perhaps])
def test_what_a_context_can_be(function: Callable[..., object]) -> None:
    """An annotation that a context satisfies, or that does not say, is accepted."""
    handlers = Handlers(Shop)
    handlers.register(function)
    (handler,) = handlers
    context = JobContext()
    assert context is handler.call(Charge("ada"), context)


def number(job: Charge, ctx: int) -> None:
    """Want a number."""


def text(job: Charge, ctx: "str") -> None:
    """Want text."""


def one_of_two(job: Charge, ctx: int | str = 3) -> None:
    """Want something else, but under the name of a context."""


def second_job(job: Charge, other: Chase) -> None:
    """Want two jobs."""


class Clerk:
    """A handler object that wants a number."""

    def handle(self, job: Charge, ctx: int) -> None:
        """Want a number."""


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (number, "handler number: `ctx: int`"),
        (text, "handler text: `ctx: 'str'`"),
        (one_of_two, r"handler one_of_two: `ctx: int \| str = 3`"),
        (second_job, "handler second_job: `other: .*Chase`"),
        (Clerk(), "handler Clerk: `ctx: int`"),
    ],
)
def test_what_a_context_cannot_be(handler: Any, says: str) -> None:
    """A handler that expects anything else is refused, showing the parameter."""
    handlers = Handlers(Shop)
    with pytest.raises(ConfigurationError, match=rf"{says} is given a JobContext"):
        handlers.register(Charge, handler)
    assert [] == list(handlers)
