"""What the commands share: the app that they work for, and types of options.

Every option has an environment variable, which its help names.
"""

import functools
import logging
import os
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from queuey_sync.app import Queuey
from queuey_sync.backends.base import Backend
from queuey_sync.cli.app_loading import Loader, load_app
from queuey_sync.cli.logs import DEFAULT_LEVEL, LEVELS, Log, set_up_logging
from queuey_sync.cli.reporting import say, show
from queuey_sync.cli.signals import Signals
from queuey_sync.durations import format_duration, parse_duration
from queuey_sync.errors import BrokerUnavailable, ConfigurationError
from queuey_sync.observe.escaping import one_line

log = logging.getLogger(__name__)

Command = Callable[..., int | None]
"""What does the work of a command; returns its exit code, or None for success."""

_LOG = "queuey_sync.log"
"""Where a click context keeps the `Log` of its command."""
_BETWEEN_LOOKS = 0.5
"""Seconds between two looks for a broker that is awaited."""
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


def _log_options(command: Command) -> Command:
    """Give a command the options of its log, each of them a field of `Log`."""
    options = (
        option(
            "-l",
            "--log-level",
            type=click.Choice(LEVELS, case_sensitive=False),
            metavar="LEVEL",
            help=f"What to log: {', '.join(LEVELS)}; {DEFAULT_LEVEL} by default.",
        ),
        option(
            "--log-format",
            type=click.Choice(("text", "json")),
            metavar="FORMAT",
            help="How to log: text, the default, or json, one object a line.",
        ),
        option(
            "--log-file",
            metavar="PATH",
            help="Log to this file, which workers may share; by default to standard error.",
        ),
        option(
            "--log-max-size",
            callback=to_size,
            metavar="SIZE",
            help="Put the log file aside when it is larger than this; 50MB by default.",
        ),
        option(
            "--log-keep",
            type=click.IntRange(1, 1_000),
            metavar="N",
            help="How many log files that were put aside are kept; 10 by default.",
        ),
        option(
            "--log-compress",
            is_flag=True,
            default=None,
            help="Compress log files that were put aside.",
        ),
    )
    for add in reversed(options):
        command = add(command)
    return command


def current_log() -> Log:
    """How the command that runs now was told to log."""
    log: Log = click.get_current_context().meta[_LOG]
    return log


def _take_log(options: dict[str, Any]) -> Log:
    """Take the options of the log out of those of a command; they are all good, or refused."""
    names = [name for name in options if name.startswith("log_")]
    taken = {name.removeprefix("log_"): options.pop(name) for name in names}
    given = {name: value for name, value in taken.items() if value is not None}
    file = given.get("file")
    for name in () if file is not None else ("max_size", "keep", "compress"):
        if given.get(name):
            raise click.UsageError(f"--log-{name.replace('_', '-')}: it needs --log-file")
    if file is not None:
        given["file"] = os.path.realpath(file)  # jobs may change the folder; a link stays one
    log = Log(**given)
    _try_file(log)
    click.get_current_context().meta[_LOG] = log
    return log


def _try_file(log: Log) -> None:
    handler = log.open_file()
    if handler is None:
        return
    try:
        handler.check()
    except OSError as error:
        raise click.UsageError(f"--log-file {log.file}: {error.strerror}") from None
    finally:
        handler.close()


def takes_loaded_app(command: Command) -> Command:
    """Give a command the argument ``MODULE:APP`` and the options of its log.

    The command is called with the keyword ``app``, when the app is imported and logging is set up.
    """
    options_of_command: Callable[[Command], Command] = functools.wraps(command)

    @click.argument("reference", metavar="MODULE:APP")
    @_log_options
    @click.pass_obj
    @options_of_command
    def with_app(signals: Signals, reference: str | Loader, **rest: object) -> int | None:
        log = _take_log(rest)
        app = load_app(reference, signals)
        if not set_up_logging(log) and log.format != "text":
            say("--log-format: the app has set up the log itself, so its format stays")
        return command(app=app, **rest)

    return with_app


def takes_app(command: Command) -> Command:
    """The same for a command that works where the app's jobs wait, or at the ``--url`` it has."""
    options_of_command: Callable[[Command], Command] = functools.wraps(command)

    # Not read by click: what the environment says gives way to the URL that an app has of its own,
    # so that the app's producers and its workers use one broker.
    @click.option(
        "--url",
        metavar="URL",
        help="Where jobs wait, in place of the app's own URL; without either, that of the"
        " environment.  [env var: QUEUEY_URL]",
    )
    @option(
        "--no-declare",
        is_flag=True,
        help="Only look for the queues, for a user of the broker who may not declare them.",
    )
    @option(
        "--wait-for-broker",
        callback=to_time_limit,
        metavar="DURATION",
        help="How long to wait for a broker that cannot be reached at the start, such as 60s; not"
        " at all by default.",
    )
    @options_of_command
    def at_url(
        app: Queuey[Any],
        url: str | None,
        no_declare: bool,  # noqa: FBT001 - as click calls it
        wait_for_broker: timedelta | None,
        **rest: object,
    ) -> int | None:
        if no_declare:
            app.connect_to(declare=False)
        _choose_broker(app, url, no_declare=no_declare)
        if wait_for_broker is not None:
            await_broker(app.backend(), wait_for_broker)
        return command(app=app, **rest)

    return takes_loaded_app(at_url)


def await_broker(backend: Backend, limit: timedelta) -> None:
    """Wait until a backend can be used. A signal ends the process meanwhile, as at any start.

    Also for one that refuses: while it starts, a broker may not know its users and vhosts yet.

    Raises:
        BrokerUnavailable: It could not be reached within the limit.
    """
    began = time.monotonic()
    told = ""
    while True:
        try:
            backend.depths([])
        except BrokerUnavailable as error:
            left = began + limit.total_seconds() - time.monotonic()
            if left <= 0:
                raise
            if str(error) != told:
                told = str(error)
                log.warning("%s; waiting for it, %s in all", one_line(told), format_duration(limit))
            time.sleep(min(left, _BETWEEN_LOOKS))
        else:
            if told:
                log.warning("the broker is there after %.1f s", time.monotonic() - began)
            return


def _choose_broker(app: Queuey[Any], url: str | None, *, no_declare: bool) -> None:
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
        if no_declare and "'declare'" in text:
            raise click.UsageError("--no-declare: it is for RabbitMQ only") from None
        if text.endswith("url="):
            raise click.UsageError(f"{str(error).removesuffix('url=')}--url") from None
        raise
