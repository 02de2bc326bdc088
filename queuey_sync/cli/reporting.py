"""What a command says: results on standard output, all else on standard error, and no password.

A result that cannot be written is an error; anything else that cannot is dropped. This library's
own errors hold no password. Texts that are not ours may: click quotes arguments, tracebacks quote
code. Nothing here decides about exit codes; that is in `exits.py`.
"""

import io
import os
import re
import shutil
import sys
import traceback
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import click

from queuey_sync.observe.escaping import one_line

_PASSWORD = re.compile(r"(\w://[^\s:/@]*):[^\s@]{0,2000}@")
"""Of limited length, so that a text that was made for it takes no time without end."""


_UNITS = (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1))
"""Each with its seconds, and with the next smaller one and its seconds."""
_GAP = "  "
"""Between two columns."""
_SHORTEST_COLUMN = 8
"""Characters of the last column that are left however narrow a terminal is."""


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


def rough(seconds: int) -> str:
    """A time in the two largest units that matter.

    >>> rough(0), rough(260), rough(100_000)
    ('0s', '4m 20s', '1d 3h')
    """
    for unit, size, smaller, part in _UNITS:
        if seconds >= size:
            return f"{seconds // size}{unit} {seconds % size // part}{smaller}"
    return f"{seconds}s"


def terminal_width() -> int | None:
    """How wide the terminal is; None if standard output is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def columns(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
) -> list[str]:
    """The lines of a table; the last column is cut to what is left of the terminal.

    Args:
        headings: One for each column.
        rows: What is in them.
        right: The headings of those that are set to the right.

    >>> columns(("n", "what"), [("1", "one"), ("10", "ten")], right=["n"])
    [' n  what', ' 1  one', '10  ten']
    """
    table = [headings, *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    width = terminal_width()
    if width is not None:
        taken = sum(each + len(_GAP) for each in widths[:-1])
        widths[-1] = min(widths[-1], max(_SHORTEST_COLUMN, width - taken))
    return [_line(row, headings, widths, right) for row in table]


def _line(
    row: Sequence[str], headings: Sequence[str], widths: Sequence[int], right: Collection[str]
) -> str:
    cells = [
        cell.rjust(width) if heading in right else cell.ljust(width)
        for cell, heading, width in zip(row, headings, widths, strict=True)
    ]
    if len(row[-1]) > widths[-1]:
        cells[-1] = row[-1][: widths[-1] - 3] + "..."
    return _GAP.join(cells).rstrip()


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
