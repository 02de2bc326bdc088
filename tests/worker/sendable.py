"""Handlers of every kind that a child process can be given; each tells where it ran.

Children import this.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, NoReturn

from queuey_sync import Fatal, JobContext


class Teller:
    """An object; it is pickled with what it holds."""

    def __init__(self, name: str) -> None:
        self._name = name

    def handle(self, job: Any, _: JobContext) -> NoReturn:
        raise Fatal(f"{self._name} {job.seq} in {os.getpid()}")


def function(job: Any) -> NoReturn:
    """A function of a module."""
    raise Fatal(f"told {job.seq} in {os.getpid()}")


def _logged(function: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(function)
    def call(job: Any) -> None:
        function(job)

    return call


@_logged
def decorated(job: Any) -> NoReturn:
    """A function behind a decorator of the user's own."""
    function(job)


def _named(name: str, job: Any, ctx: JobContext) -> None:
    Teller(name).handle(job, ctx)


KINDS = {
    "object": Teller("told"),
    "bound method": Teller("told").handle,
    "partial": functools.partial(_named, "told"),
    "function": function,
    "decorated function": decorated,
}
