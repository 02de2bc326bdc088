"""The system checks of ``QUEUEY``: what is wrong with it, and what to write instead.

``manage.py check`` runs them, and every command of ``manage.py queuey`` before anything else. The
back-end of tasks checks its own settings, in `tasks.py`.
"""

import os
from collections.abc import Iterator
from typing import Any

import click
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from queuey_sync.app import Queuey
from queuey_sync.contrib.django.conf import Conf, current_app, read, task_queues
from queuey_sync.errors import ConfigurationError

TAG = "queuey"
NO_URL = "queuey_sync.E006"
"""The id of what is said when there is no URL at all."""
_EXAMPLE = "QUEUEY = {'APP': 'shop.queues:app', 'URL': f'sqlite:///{BASE_DIR}/queuey.sqlite3'}"


def register() -> None:
    """Tell Django of the checks."""
    checks.register(check_settings, TAG)
    checks.register(check_deployment, TAG, deploy=True)


def check_settings(**_: Any) -> list[checks.CheckMessage]:  # noqa: ANN401 - as Django calls it
    """Whether jobs can be enqueued and worked on with these settings. Nothing is dialled."""
    try:
        conf, app = read(), current_app()
        task_queues()
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), f"For example: {_EXAMPLE}", id="queuey_sync.E001")]
    return [*_check_url(conf, app), *_check_handlers(app), *_check_defaults(conf)]


def check_deployment(**_: Any) -> list[checks.CheckMessage]:  # noqa: ANN401 - as above
    """Whether the jobs reach a worker that is another process."""
    url = _url_in_use()
    if not url.startswith(("memory:", "inline:")):
        return []
    text = f"QUEUEY['URL'] is {url}, which no other process can see: no worker finds the jobs."
    return [checks.Warning(text, f"For example: {_EXAMPLE}", id="queuey_sync.W003")]


def _url_in_use() -> str:
    try:
        url = read().url
    except ImproperlyConfigured:
        return ""
    return str(os.environ.get("QUEUEY_URL", "") if url is None else url)


def _check_url(conf: Conf, app: Queuey[Any]) -> Iterator[checks.CheckMessage]:
    url = conf.url
    try:
        app.backend()
    except ConfigurationError as error:
        hint = f"For example: {_EXAMPLE}"
        missing = url is None and not os.environ.get("QUEUEY_URL")
        yield checks.Error(
            f"QUEUEY['URL']: {error}", hint, id=NO_URL if missing else "queuey_sync.E002"
        )
        return
    if url is not None and url.startswith("sqlite:///") and not url.startswith("sqlite:////"):
        text = f"QUEUEY['URL']: {url} is relative to the folder that a process is started in."
        hint = "Processes of other folders use another file; write {BASE_DIR} before its name."
        yield checks.Warning(text, hint, id="queuey_sync.W001")


def _check_handlers(app: Queuey[Any]) -> Iterator[checks.CheckMessage]:
    try:
        handlers = app.handlers.by_name()
    except ConfigurationError as error:
        yield checks.Error(str(error), id="queuey_sync.E003")
        return
    if not handlers:
        hint = "Register them in the jobs.py of an app in INSTALLED_APPS: @app.handler"
        yield checks.Warning("The Queuey app has no handlers.", hint, id="queuey_sync.W002")


def _check_defaults(conf: Conf) -> Iterator[checks.CheckMessage]:
    if not conf.defaults:
        return
    from queuey_sync.cli.main import commands  # noqa: PLC0415 - the whole command line

    options: dict[str, tuple[click.Command, click.Parameter]] = {
        str(parameter.name): (command, parameter)
        for command in commands.commands.values()
        for parameter in command.params
        if parameter.envvar and parameter.expose_value  # --lock would take the lock
    }
    for name, value in conf.defaults.items():
        if name not in options:
            text = f"QUEUEY['DEFAULTS']: no command has an option {name!r}"
            hint = f"There are {', '.join(sorted(options))}."
            yield checks.Error(text, hint, id="queuey_sync.E004")
            continue
        command, parameter = options[name]
        try:
            parameter.process_value(click.Context(command), str(value))
        except click.UsageError as error:
            text = f"QUEUEY['DEFAULTS'][{name!r}]: {error.format_message()}"
            yield checks.Error(text, id="queuey_sync.E005")
