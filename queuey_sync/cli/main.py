"""The commands together, and what becomes of their errors: one line, and an exit code.

Each command is in `commands/`, in the module of its name; `exits.py` has the codes, `signals.py`
what signals do.
"""

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import NoReturn

import click

from queuey_sync.cli.app_loading import Loader
from queuey_sync.cli.commands.completion import completed, completion
from queuey_sync.cli.commands.dead import dead
from queuey_sync.cli.commands.declare import declare
from queuey_sync.cli.commands.drain import drain
from queuey_sync.cli.commands.enqueue import enqueue
from queuey_sync.cli.commands.health import health, jobs
from queuey_sync.cli.commands.move import move
from queuey_sync.cli.commands.queues import queues
from queuey_sync.cli.commands.worker import worker
from queuey_sync.cli.exits import Exit, exit_for, leave
from queuey_sync.cli.options import help_option
from queuey_sync.cli.reporting import (
    never_fail_on_stderr,
    say,
    show,
    show_traceback,
    without_passwords,
)
from queuey_sync.cli.signals import Signals
from queuey_sync.errors import ConsumerStopped, QueueyError
from queuey_sync.observe.escaping import describe


def _show_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - as click calls it
    if wanted:
        try:
            version = importlib.metadata.version("queuey-sync")
        except importlib.metadata.PackageNotFoundError:
            version = "(not installed)"
        show(f"queuey-sync {version}")
        context.exit()


@click.group(invoke_without_command=True, add_help_option=False)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@help_option
@click.pass_context
def commands(context: click.Context) -> None:
    """Background jobs for plain synchronous Python.

    Results go to standard output, logs and errors to standard error.

    MODULE:APP names a Queuey app, such as shop.jobs:app; modules of the current directory are found
    too.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(Exit.USAGE)


commands.add_command(completion)
commands.add_command(dead)
commands.add_command(declare)
commands.add_command(drain)
commands.add_command(enqueue)
commands.add_command(health)
commands.add_command(jobs)
commands.add_command(move)
commands.add_command(queues)
commands.add_command(worker)


def run_in_framework(name: str, arguments: Sequence[str], load: Loader) -> NoReturn:
    """Run one command as a part of a framework's own, and end the process as ``queuey-sync`` does.

    Args:
        name: How it is called, such as ``flask queuey``.
        arguments: What follows that.
        load: Gives the app, in place of MODULE:APP; called when the options are known to be good.
    """
    signals = Signals(stop_is_success=list(arguments[:1]) == ["worker"])
    signals.listen()
    never_fail_on_stderr()
    leave(run(signals, arguments, commands_of(load), name))


def commands_of(load: Loader) -> click.Group:
    """The commands for one app, without their argument MODULE:APP."""
    group = _for_app(commands, load)
    assert isinstance(group, click.Group)  # noqa: S101 - as that is one
    group.help = (commands.help or "").rpartition("\n\n")[0]
    return group


def _for_app(command: click.Command, load: Loader) -> click.Command:
    """A copy that needs no MODULE:APP, or a group of such copies."""
    made = copy(command)
    if isinstance(made, click.Group):
        made.commands = {
            name: _for_app(one, load)
            for name, one in made.commands.items()
            if one not in (completion, health, jobs)  # they know no app
        }
    else:
        assert made.callback is not None  # noqa: S101 - each of ours has one
        made.params = [one for one in made.params if one.name != "reference"]
        made.callback = partial(made.callback, reference=load)
    return made


def run(
    signals: Signals,
    arguments: Sequence[str] | None = None,
    group: click.Group = commands,
    name: str = "queuey-sync",
) -> int:
    """Run one command, report what went wrong with it, and return the exit code.

    Args:
        signals: What listens for signals already.
        arguments: In place of those of this process.
        group: The commands.
        name: What their user calls them.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if group is commands and (answered := completed(group)) is not None:
            return answered
        _refuse_what_is_no_text(given)
        # Without click's own handling of errors, commands return None, and --help its exit code.
        code: int | None = group.main(given, prog_name=name, standalone_mode=False, obj=signals)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else name
        text = without_passwords(error.format_message())
        say(f"{text.rstrip('.')}; see {path} --help")
        return error.exit_code
    except click.ClickException as error:
        say(without_passwords(error.format_message()))
        return error.exit_code
    except QueueyError as error:
        return _report(error)
    except BaseException as error:  # noqa: BLE001 - a job's own code may raise SystemExit, too
        show_traceback(error)
        say(without_passwords(f"unexpected {describe(error)}"))
        return Exit.UNEXPECTED
    return code or Exit.SUCCESS


def _refuse_what_is_no_text(arguments: Sequence[str]) -> None:
    """Refuse bytes that are no UTF-8: neither jobs nor brokers can hold them."""
    settings = [(name, text) for name, text in os.environ.items() if name.startswith("QUEUEY_")]
    for name, text in [*(("argument", text) for text in arguments), *settings]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"{name}: no UTF-8: {os.fsencode(text)!r}") from None


def _report(error: QueueyError) -> Exit:
    code = exit_for(error)
    if code is Exit.UNEXPECTED:
        show_traceback(error)
    cause = error.__cause__ if isinstance(error, ConsumerStopped) else None
    say(f"{error}: {str(cause) or type(cause).__name__}" if cause else str(error))
    return code
