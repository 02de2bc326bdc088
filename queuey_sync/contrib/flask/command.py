"""``flask queuey worker|drain|…``: the commands of ``queuey-sync``, for the app of ``flask --app``.

Flask imports this module for each of its own commands, too; the command line itself, which is most
of it, is imported when it is run.
"""

from functools import partial
from typing import Any, NoReturn

import click
from flask.cli import NoAppException, ScriptInfo

from queuey_sync.contrib.flask.extension import FlaskQueuey
from queuey_sync.errors import ConfigurationError


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Background jobs: run workers, drain, enqueue and look at queues.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def queuey(context: click.Context, arguments: tuple[str, ...]) -> NoReturn:
    """Run a command of queuey-sync for the Flask app, and end as it does."""
    from queuey_sync.cli.main import run_in_framework  # noqa: PLC0415 - as said

    load = partial(load_queuey, context.ensure_object(ScriptInfo))
    run_in_framework(context.command_path, arguments, load)


def load_queuey(script: ScriptInfo) -> FlaskQueuey[Any]:
    """The `FlaskQueuey` of the app that ``flask`` was told to use.

    Raises:
        BadApp: There is no such app, it has none, or its configuration is wrong.
    """
    from queuey_sync.cli.app_loading import BadApp  # noqa: PLC0415 - as said

    try:
        app = script.load_app()
    except NoAppException as error:
        text, _, traceback = error.format_message().partition("\n")
        if traceback:
            click.echo(traceback.strip("\n"), err=True)
        raise BadApp(text) from None
    except ConfigurationError as error:
        if str(error).startswith("QUEUEY_"):  # a key of the app's, which says more than a traceback
            raise BadApp(str(error)) from None
        raise
    found: FlaskQueuey[Any] | None = app.extensions.get("queuey")
    if found is None:
        raise BadApp(
            f"the Flask app `{app.name}` has no FlaskQueuey: call init_app(app) where it is made"
        )
    # The same again, without the app that is loaded: a child process loads one of its own.
    again = ScriptInfo(script.app_import_path, script.create_app, script.set_debug_flag)
    found.contexts.source = again.load_app
    return found
