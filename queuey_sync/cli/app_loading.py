"""From ``MODULE:APP`` to the `Queuey` object that it names, or to an error that says why not.

It imports the user's module and calls nothing in it.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.exits import Exit
from queuey_sync.cli.reporting import show_traceback


class BadApp(click.ClickException):
    """The app cannot be imported, or is wrong."""

    exit_code = Exit.BAD_APP


def load_app(reference: str) -> Queuey[Any]:
    """Import an app; modules of the current directory are found too.

    Args:
        reference: A module and the name of the app in it, such as ``shop.jobs:app``.

    Raises:
        click.UsageError: It is no reference.
        BadApp: There is no such module or app, or importing the module failed.
    """
    module_name, colon, attribute = reference.partition(":")
    names = [*module_name.split("."), *attribute.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise click.UsageError(f"expected MODULE:APP, such as shop.jobs:app, got {reference!r}")
    found: object = _import(module_name)
    try:
        for name in attribute.split("."):
            found = getattr(found, name)
    except AttributeError:
        raise BadApp(
            f"{reference}: there is no `{attribute}` in {module_name}{_apps_in(module_name)}"
        ) from None
    if not isinstance(found, Queuey):
        raise BadApp(
            f"{reference} is no Queuey app, but a {type(found).__name__}{_apps_in(module_name)}"
        )
    return found


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises
        if isinstance(error, ModuleNotFoundError) and _is_part_of(name, error.name):
            raise BadApp(
                f"cannot import {name}: there is no module `{error.name}`, neither installed nor"
                f" in {here}"
            ) from None
        show_traceback(error.with_traceback(_without_our_frames(error.__traceback__)))
        raise BadApp(f"cannot import {name}: {type(error).__name__}: {error}") from None


def _is_part_of(name: str, missing: str | None) -> bool:
    """Whether what is missing is the module that was asked for, or a package that it is in."""
    return missing is not None and f"{name}.".startswith(f"{missing}.")


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's code on: without this module and the import system."""
    ours = (__file__, importlib.__file__)
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file not in ours and not file.startswith("<frozen importlib"):
            break
        traceback = traceback.tb_next
    return traceback


def _apps_in(module_name: str) -> str:
    module = sys.modules[module_name]
    apps = [name for name, value in vars(module).items() if isinstance(value, Queuey)]
    return f"; it has {', '.join(f'{module_name}:{name}' for name in apps)}" if apps else ""
