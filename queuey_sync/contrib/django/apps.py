"""The Django app: imports each ``jobs.py``, and gives the site's `Queuey` app what Django needs.

It is ``queuey_sync.contrib.django`` in ``INSTALLED_APPS``. Read next: `conf.py`, `checks.py`.
"""

import logging
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import autodiscover_modules

from queuey_sync.app import Queuey
from queuey_sync.contrib.django import conf
from queuey_sync.contrib.django.checks import register as register_checks
from queuey_sync.contrib.django.database import close_connections, set_up_child, tidy_connections
from queuey_sync.observe.escaping import one_line

_log = logging.getLogger(__name__)
_own_urls: "WeakKeyDictionary[Queuey[Any], str | Sequence[str] | None]" = WeakKeyDictionary()
"""The URLs that apps were made with, which the setting replaces. Filled by one thread: when Django
is set up, or by a test that changes settings."""


class QueueyConfig(AppConfig):
    """What Django knows of this app."""

    name = "queuey_sync.contrib.django"
    label = "queuey_sync"
    verbose_name = "Background jobs"

    def ready(self) -> None:
        """Find the jobs. Wrong settings are left to the system checks, which say it better."""
        register_checks()
        install()
        autodiscover_modules("jobs")
        setting_changed.connect(_on_setting_changed)


def install() -> None:
    """Give the site's app its URL, and have each of its jobs run as Django needs it."""
    try:
        settings, app, tasks = conf.read(), conf.current_app(), conf.task_queues()
    except ImproperlyConfigured as error:
        # No system checks run in a web process.
        _log.error("the Queuey app cannot be set up: %s", one_line(error))
        return
    own = _own_urls.setdefault(app, app.url)
    url = own if settings.url is None else settings.url
    if url != app.url:
        app.connect_to(url)
    handlers = app.handlers
    if tidy_connections not in handlers.arounds:
        # Around all others, which may begin a transaction.
        handlers.arounds.insert(0, tidy_connections)
        handlers.end_hooks.append(close_connections)
        handlers.preparations.append(set_up_child)
        app.on_start(_log_once)
    if tasks:
        from queuey_sync.contrib.django.task_jobs import register  # noqa: PLC0415 - may be absent

        register(app)


def _log_once() -> None:
    """With a handler at the root, as a worker has, Django's own doubles each line."""
    logger = logging.getLogger("django")
    if logger.propagate and logging.getLogger().handlers:
        for handler in [one for one in logger.handlers if type(one) is logging.StreamHandler]:
            logger.removeHandler(handler)


def _on_setting_changed(*, setting: str, **_: Any) -> None:  # noqa: ANN401 - as Django sends it
    """Follow ``override_settings`` in tests."""
    if setting in ("QUEUEY", "TASKS"):
        install()
