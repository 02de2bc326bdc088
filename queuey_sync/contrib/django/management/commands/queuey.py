"""``manage.py queuey worker|drain|…``: the commands of ``queuey-sync``, for the app of the site.

Options, output, exit codes and signals are those of `queuey_sync.cli`; Django's own options for
every command work beside them. Nothing of what the commands do is decided here.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    handle_default_options,
)

from queuey_sync.app import Queuey
from queuey_sync.cli.app_loading import BadApp
from queuey_sync.cli.main import commands_of, run, run_in_framework
from queuey_sync.cli.signals import Signals
from queuey_sync.contrib.django import conf
from queuey_sync.contrib.django.checks import NO_URL, TAG


class Command(BaseCommand):
    """Runs a command line, or with ``call_command`` a part of one."""

    help = "Background jobs: run workers, drain, enqueue and look at queues."
    requires_system_checks = (TAG,)
    """Run when the options are known to be good; see `load`."""

    def add_arguments(self, parser: CommandParser) -> None:
        """What ``call_command`` may give: a command and its options, as on a command line."""
        if not self._called_from_command_line:
            parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def run_from_argv(self, argv: list[str]) -> NoReturn:
        """Run a command line of ``manage.py``, and end the process with the command's exit code."""
        name = f"{Path(argv[0]).name} {argv[1]}"
        given, rest = _split(argv[2:])
        self._called_from_command_line = True
        # Django's own options may stand anywhere; -h is the command's.
        parser = self.create_parser(argv[0], argv[1], add_help=False, allow_abbrev=False)
        options, arguments = parser.parse_known_args(given)
        handle_default_options(options)
        _set_defaults()
        run_in_framework(name, [*arguments, *rest], load_unchecked if options.skip_checks else load)

    def print_help(self, prog_name: str, subcommand: str) -> NoReturn:
        """What ``manage.py help queuey`` shows."""
        self.run_from_argv([prog_name, subcommand, "--help"])

    def handle(self, *_: object, arguments: Sequence[str], skip_checks: bool, **__: object) -> None:
        """Run a command inside this process; signals are the caller's.

        Raises:
            CommandError: It failed, with the exit code as its ``returncode``.
        """
        _set_defaults()
        signals = Signals(stop_is_success=False)
        code = run(signals, arguments, commands_of(load_unchecked if skip_checks else load))
        if code:
            raise CommandError(f"exit code {code}; standard error says why", returncode=code)


def load() -> Queuey[Any]:
    """The app of the site, if the checks of its settings find nothing wrong.

    Raises:
        BadApp: They do.
    """
    found = checks.run_checks(tags=[TAG])
    # Without a URL in the settings, the command line may have one; if not, the command says so.
    faults = [one for one in found if one.is_serious() and one.id != NO_URL]
    if faults:
        raise BadApp("; ".join(f"{one.msg}. {one.hint or ''}".strip() for one in faults))
    return load_unchecked()


def load_unchecked() -> Queuey[Any]:
    """The app of the site.

    Raises:
        BadApp: There is none.
    """
    try:
        return conf.current_app()
    except ImproperlyConfigured as error:
        raise BadApp(str(error)) from None


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before ``--``, and the rest from it on."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:end], arguments[end:]


def _set_defaults() -> None:
    """Put the defaults of the settings below the environment and the command line."""
    try:
        defaults: Mapping[str, object] = conf.read().defaults
    except ImproperlyConfigured:
        return  # `load` says what is wrong
    for name, value in defaults.items():
        os.environ.setdefault(f"QUEUEY_{name.upper()}", str(value))
