"""What the commands share: the app that they work for, and types of options.

Every option has an environment variable, which its help names.
"""

import functools
import os
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.app_loading import load_app
from queuey_sync.cli.logs import DEFAULT_LEVEL, LEVELS, set_up_logging
from queuey_sync.cli.reporting import show
from queuey_sync.cli.signals import Signals
from queuey_sync.durations import parse_duration
from queuey_sync.errors import ConfigurationError

Command = Callable[..., None]

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt])i?b", re.IGNORECASE)
"""As memory is counted everywhere: 1 kB is 1024 bytes."""


def to_duration(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> timedelta | None:
    """What an option such as ``--after 30s`` means; the callback of such options."""
    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error).removeprefix("duration: ")) from None


def to_time_limit(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> timedelta | None:
    """A duration that is longer than zero."""
    duration = to_duration(context, parameter, value)
    if duration is not None and not duration:
        raise click.BadParameter("it must be longer than zero")
    return duration


def to_size(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """What an option such as ``--child-memory-limit 512MB`` means, in bytes."""
    if value is None:
        return None
    found = _SIZE.fullmatch(value.strip())
    size = float(found[1]) * 1024 ** ("kmgt".index(found[2].lower()) + 1) if found else 0
    if size < 1:
        raise click.BadParameter(f"expected a size such as 512MB or 1.5GB, got {value!r}")
    return int(size)


def option(
    *names: str,
    **settings: Any,  # noqa: ANN401 - click's own type for them
) -> Callable[[Command], Command]:
    """An option with an environment variable of its name: QUEUEY_LOG_LEVEL for ``--log-level``."""
    variable = names[-1].removeprefix("--").replace("-", "_").upper()
    return click.option(*names, envvar=f"QUEUEY_{variable}", show_envvar=True, **settings)


def _show_help(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - as click calls it
    if wanted:
        show(context.get_help())
        context.exit()


help_option = click.help_option(
    "-h", "--help", callback=_show_help, help="Show this message and exit."
)
"""In place of click's own, which raises whatever standard output does; the last option of each."""


def takes_app(command: Command) -> Command:
    """Give a command the argument ``MODULE:APP`` and the options that go with it.

    The command is called with the keyword ``app``, when the app is imported and logging is set up.
    """
    options_of_command: Callable[[Command], Command] = functools.wraps(command)

    @click.argument("reference", metavar="MODULE:APP")
    # Not read by click: what the environment says gives way to the URL that an app has of its own,
    # so that the app's producers and its workers use one broker.
    @click.option(
        "--url",
        metavar="URL",
        help="Where jobs wait, in place of the app's own URL; without either, that of the"
        " environment.  [env var: QUEUEY_URL]",
    )
    @option(
        "-l",
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        metavar="LEVEL",
        help=f"What to log, on standard error: {', '.join(LEVELS)}; {DEFAULT_LEVEL} by default.",
    )
    @click.pass_obj
    @options_of_command
    def with_app(
        signals: Signals, reference: str, url: str | None, log_level: str | None, **rest: object
    ) -> None:
        app = load_app(reference, signals)
        set_up_logging(log_level)
        _choose_broker(app, url)
        command(app=app, **rest)

    return with_app


def _choose_broker(app: Queuey[Any], url: str | None) -> None:
    """Refuse a URL that cannot be used before there is any work; nothing is dialled yet.

    An app refuses a wrong URL of its own when it is made, so what is wrong with the URL here was
    given with the command. The options of its backend are the app's in any case.
    """
    if url is not None:
        app.connect_to(url)
    try:
        app.backend()
    except ConfigurationError as error:
        key, _, text = str(error).partition(": ")
        if key == "url":
            raise click.UsageError(f"{'QUEUEY_URL' if url is None else '--url'}: {text}") from None
        if url is None and not os.environ.get("QUEUEY_URL"):
            raise click.UsageError("no broker is named: give --url, or set QUEUEY_URL") from None
        raise
