"""What the commands share: the app that they work for, and types of options.

Every option has an environment variable, which its help names.
"""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.app_loading import load_app
from queuey_sync.cli.logs import DEFAULT_LEVEL, LEVELS, set_up_logging
from queuey_sync.cli.signals import Signals
from queuey_sync.durations import parse_duration
from queuey_sync.errors import ConfigurationError

Command = Callable[..., None]


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


def option(
    *names: str,
    **settings: Any,  # noqa: ANN401 - click's own type for them
) -> Callable[[Command], Command]:
    """An option with an environment variable of its name: QUEUEY_LOG_LEVEL for ``--log-level``."""
    variable = names[-1].removeprefix("--").replace("-", "_").upper()
    return click.option(*names, envvar=f"QUEUEY_{variable}", show_envvar=True, **settings)


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
        app = load_app(reference)
        signals.listen()
        set_up_logging(log_level)
        _choose_broker(app, url)
        command(app=app, **rest)

    return with_app


def _choose_broker(app: Queuey[Any], url: str | None) -> None:
    """Refuse a URL that cannot be used before there is any work; nothing is dialled yet."""
    if url is None:
        app.backend()
        return
    app.close()  # in case it was used while it was imported, and so with its own URL
    app.connect_to(url)
    try:
        app.backend()
    except ConfigurationError as error:
        raise click.UsageError(f"--url: {str(error).removeprefix('url: ')}") from None
