"""``queuey-sync completion``: what makes a shell complete commands and options; click does it."""

import os

import click
from click.shell_completion import get_completion_class, shell_complete

from queuey_sync.cli.options import help_option
from queuey_sync.cli.reporting import show

_VARIABLE = "_QUEUEY_SYNC_COMPLETE"
"""Set by the shell when it asks."""
_PROGRAM = "queuey-sync"


@click.command(add_help_option=False)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@help_option
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in a shell.

    For bash, put this into ~/.bashrc: eval "$(queuey-sync completion bash)"
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has these three
    show(made(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())


def completed(commands: click.Command) -> int | None:
    """Answer a shell that asks, and return the exit code; None if none does."""
    instruction = os.environ.get(_VARIABLE)
    if not instruction:
        return None
    return shell_complete(commands, {}, _PROGRAM, _VARIABLE, instruction)
