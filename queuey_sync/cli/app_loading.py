"""From ``MODULE:APP`` to the `Queuey` object that it names, or to an error that says why not.

It imports the user's module and calls nothing in it, unless a framework brings the app. Whatever
that module does, raises or puts in an app's place, the outcome is an app or one line.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.exits import Exit
from queuey_sync.cli.reporting import show_traceback, without_passwords
from queuey_sync.cli.signals import Signals
from queuey_sync.observe.escaping import describe

Loader = Callable[[], Queuey[Any]]
"""Gives the app that a framework has."""


class BadApp(click.ClickException):
    """The app cannot be imported, or is wrong."""

    exit_code = Exit.BAD_APP


def load_app(reference: str | Loader, signals: Signals) -> Queuey[Any]:
    """Import an app; modules of the current directory are found too.

    Args:
        reference: A module and the name of the app in it, such as ``shop.jobs:app``; or what gives
            the app.
        signals: What listens for signals again afterwards, should the module have replaced it.

    Raises:
        click.UsageError: It is no reference.
        BadApp: There is no such module or app, or importing the module failed.
    """
    if not isinstance(reference, str):
        with _users_code("cannot load the app", signals):
            return reference()
    module_name, colon, attribute = reference.partition(":")
    names = [*module_name.split("."), *attribute.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise click.UsageError(f"expected MODULE:APP, such as shop.jobs:app, got {reference!r}")
    with _users_code(f"cannot import {module_name}", signals):
        module = _import(module_name)
    with _users_code(f"cannot load {reference}", signals):
        return _find(module, attribute, reference)


@contextmanager
def _users_code(failure: str, signals: Signals) -> Iterator[None]:
    """Run code of the user's, which may raise anything, and may have replaced signal handlers."""
    try:
        yield
    except BadApp:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises
        # With Python's own handler in place of ours, this is how a signal is heard.
        python_hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signals.listen()
        if python_hears and isinstance(error, KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        show_traceback(error.with_traceback(_without_our_frames(error.__traceback__)))
        raise BadApp(without_passwords(f"{failure}: {describe(error)}")) from None
    signals.listen()


def _import(name: str) -> ModuleType:
    try:
        here = os.getcwd()  # noqa: PTH109 - as text
    except FileNotFoundError:
        raise BadApp("the current directory is gone") from None
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not _is_part_of(name, error.name):
            raise
        raise BadApp(
            f"cannot import {name}: there is no module `{error.name}`, neither installed nor"
            f" in {here}"
        ) from None


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


def _find(module: ModuleType, attribute: str, reference: str) -> Queuey[Any]:
    found: object = module
    try:
        for name in attribute.split("."):
            found = getattr(found, name)
    except AttributeError:
        raise BadApp(
            f"{reference}: there is no `{attribute}` in {module.__name__}{_apps_in(module)}"
        ) from None
    if not isinstance(found, Queuey):
        raise BadApp(
            f"{reference} is no Queuey app, but a {type(found).__name__}{_apps_in(module)}"
        )
    return found


def _apps_in(module: ModuleType) -> str:
    # By type(): isinstance would ask a lazy object for its class, and so wake it.
    apps = [name for name, value in vars(module).items() if issubclass(type(value), Queuey)]
    names = ", ".join(f"{module.__name__}:{name}" for name in apps)
    return f"; it has {names}" if names else ""
