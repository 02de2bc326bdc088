"""What is around every job of a Flask app: an application context of its own, and its end.

A child process gets the Flask app here too: an `AppContexts` is the first thing that it unpickles,
so that the app is made before a module of jobs is imported, in the order that the worker had. It
knows no queues and no commands; those are in `extension.py` and `command.py`.
"""

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import parent_process
from typing import Any

from flask import Flask, appcontext_tearing_down, has_app_context
from flask.ctx import AppContext
from flask.globals import app_ctx
from flask.logging import default_handler

from queuey_sync.errors import ConfigurationError, Interrupt
from queuey_sync.observe.escaping import describe, one_line, traceback_lines

Source = Callable[[], Flask]
"""Makes or finds the Flask app in a child process; it can be pickled."""

_log = logging.getLogger(__name__)


class AppContexts:
    """Makes an application context for each job; what `FlaskQueuey` gives to ``around``.

    Attributes:
        source: Where a child process gets the app; None if it can import it by name. Set before a
            worker is built, then only read, as is the app.
    """

    def __init__(self) -> None:
        self.source: Source | None = None
        self._app: Flask | None = None
        self._pid: int | None = None

    def use(self, app: Flask) -> None:
        """Take this app for every job from now on."""
        self._app = app
        self._pid = os.getpid()

    def app(self) -> Flask:
        """The Flask app.

        Raises:
            ConfigurationError: There is none yet.
        """
        if self._app is None:
            raise ConfigurationError(
                "no Flask app yet: call init_app(app) first; a worker of an app that a factory"
                " makes is started with `flask --app … queuey worker`"
            )
        return self._app

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Be in a new application context; what its teardown raises is logged, and nothing more."""
        context = self.app().app_context()
        context.push()
        raised: BaseException | None = None
        try:
            yield
        except BaseException as error:
            raised = error
            raise
        finally:
            _tear_down(context, raised)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function of the user's inside an application context."""
        with self.app().app_context():
            function()

    def begin_child(self) -> None:
        """Have Flask-SQLAlchemy connect anew, if the app was made before this process was forked.

        What `FlaskQueuey` registers as a preparation. Connections that an app opens while it is
        imported belong to the forkserver, and two processes on one socket read each other's rows.
        """
        if self._pid in (None, os.getpid()):
            return
        app = self.app()
        with app.app_context():
            for engine in getattr(app.extensions.get("sqlalchemy"), "engines", {}).values():
                engine.dispose(close=False)

    def begin_jobs(self) -> None:
        """Log each record once; what `FlaskQueuey` gives to ``on_start``."""
        if logging.getLogger().handlers:
            # Flask adds its own for want of another; with both, each line would come twice.
            self.app().logger.removeHandler(default_handler)

    def __reduce__(self) -> tuple[Any, ...]:
        app = self.app()
        return _in_child, (app.import_name, self.source or _by_name(app))


def _tear_down(context: AppContext, raised: BaseException | None) -> None:
    """Call each of the app's teardown functions, whatever another of them raises.

    `AppContext.pop` calls none that come after one that raised (Flask up to 3.1), and one of those
    may be what removes the database session. The next context may well have the id of this one,
    which is all that Flask-SQLAlchemy knows it by: it would be given this session. The context
    itself ends with the contextvars that each run of a job has of its own.
    """
    app = context.app
    while has_app_context() and app_ctx.g is not context.g:  # the handler has pushed and left it
        _call(app, app_ctx.pop, raised)

    def signal(error: BaseException | None) -> None:
        appcontext_tearing_down.send(app, _async_wrapper=app.ensure_sync, exc=error)

    for function in [*reversed(app.teardown_appcontext_funcs), signal]:
        _call(app, function, raised)


def _call(app: Flask, function: Callable[..., Any], raised: BaseException | None) -> None:
    try:
        call = app.ensure_sync(function)
        try:
            call(raised)
        except Interrupt:  # the time limit has come just here; it comes once
            call(raised)
    except Exception as fault:  # noqa: BLE001 - it may be anybody's code
        name = getattr(function, "__qualname__", repr(function))
        text = one_line(describe(fault)) + traceback_lines(fault)
        _log.error("teardown function %s failed, and its job stands: %s", name, text)


def _by_name(app: Flask) -> Source:
    module = sys.modules.get(app.import_name)
    for name, value in list(vars(module).items()) if module is not None else ():
        if value is app:
            return partial(_import_app, app.import_name, name)
    raise ConfigurationError(
        f"module `{app.import_name}` has the Flask app in no variable, so a child process cannot"
        " find it; start the worker with `flask --app … queuey worker`"
    )


def _import_app(module: str, attribute: str) -> Flask:
    app: Flask = getattr(importlib.import_module(module), attribute)
    return app


def _in_child(import_name: str, source: Source) -> AppContexts:
    """What a pickle of `AppContexts` calls: that of the app in this process."""
    if parent_process() is None:  # the forkserver, which imports and makes nothing
        importlib.import_module(import_name)
        return AppContexts()
    contexts: AppContexts = source().extensions["queuey"].contexts
    return contexts
