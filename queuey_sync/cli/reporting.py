"""What a command says: results on standard output, all else on standard error, and no password.

A result that cannot be written is an error; anything else that cannot is dropped. This library's
own errors hold no password. Texts that are not ours may: click quotes arguments, tracebacks quote
code. Nothing here decides about exit codes; that is in `exits.py`.
"""

import io
import os
import re
import sys
import traceback
from contextlib import suppress
from typing import Any

import click

_PASSWORD = re.compile(r"(\w://[^\s:/@]*):[^\s@]{0,2000}@")
"""Of limited length, so that a text that was made for it takes no time without end."""


class OutputLost(click.ClickException):
    """Standard output does not take a result: it is closed, or full, or nobody reads it."""

    def __init__(self, why: str, also: str = "") -> None:
        super().__init__(f"standard output cannot be written: {why}{also and '; '}{also}")
        self.why = why


def show(text: str) -> None:
    """Write a result to standard output, at once.

    Raises:
        OutputLost: It could not be written, or not all of it.
    """
    if sys.stdout is None:
        raise OutputLost("it is closed")
    try:
        click.echo(text)
    except (OSError, ValueError) as error:  # a ValueError for what its encoding does not have
        _discard_output()
        raise OutputLost(getattr(error, "strerror", None) or str(error)) from None


def say(text: str) -> None:
    """Write one line to standard error, under the command's name."""
    click.echo(f"queuey-sync: {' '.join(text.split())}", err=True)


def show_traceback(error: BaseException) -> None:
    """Write a traceback to standard error."""
    click.echo(without_passwords("".join(traceback.format_exception(error))), err=True, nl=False)


def without_passwords(text: str) -> str:
    """The text with the passwords of its URLs left out.

    >>> without_passwords("cannot use amqp://ada:s/ecret@mq:5672/shop")
    'cannot use amqp://ada:…@mq:5672/shop'
    """
    return _PASSWORD.sub(r"\1:…@", text)


def flush_output() -> None:
    """Write what an app has printed and Python still keeps; say so if that fails, and drop it.

    It is no result of a command, so it does not change the exit code. Python's own flush, at the
    very end, would.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        _discard_output()
        say(f"not all that was printed could be written to standard output: {error}")


def _discard_output() -> None:
    """Let what is still buffered go nowhere: it would fail again with the flush at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Unfailing(io.FileIO):
    """A file that drops what it cannot write."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - whatever holds bytes
        """Write what can be written now, and say that all of it was."""
        written = None
        with suppress(OSError):
            written = super().write(data)
        return len(data) if written is None else written


def never_fail_on_stderr() -> None:
    """Have a line on standard error that cannot be written dropped, whoever writes it.

    A full disk under a log, or a terminal that is gone, is no reason for a job or a command to
    fail. When there is room again, lines are written again.
    """
    if sys.stderr is None:  # closed: or the next file or connection would be number 2
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Unfailing(2, "w", closefd=False)),
        encoding=sys.stderr.encoding if sys.stderr else "utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )
