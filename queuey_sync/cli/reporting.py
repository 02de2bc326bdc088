"""What a command says when it fails: one line on standard error, and no password.

This library's own errors hold none. Texts that are not ours may: click quotes arguments, tracebacks
quote code. Nothing here decides about exit codes; that is in `exits.py`.
"""

import re
import traceback

import click

_PASSWORD = re.compile(r"(\w://[^\s:/@]*):[^\s@]*@")


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
