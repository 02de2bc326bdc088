"""The Django app: imports each ``jobs.py``, and gives the site's `Queuey` app what Django needs.

It is ``queuey_sync.contrib.django`` in ``INSTALLED_APPS``. Read next: `conf.py`, `checks.py`.
"""

from typing import Any

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import autodiscover_modules

from queuey_sync.contrib.django import conf
from queuey_sync.contrib.django.checks import register as register_checks
from queuey_sync.contrib.django.database import close_connections, set_up_child, tidy_connections


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
        settings, app = conf.read(), conf.current_app()
    except ImproperlyConfigured:
        return
    if settings.url is not None:
        app.connect_to(settings.url)
    handlers = app.handlers
    if tidy_connections not in handlers.arounds:
        # Around all others, which may begin a transaction.
        handlers.arounds.insert(0, tidy_connections)
        handlers.end_hooks.append(close_connections)
        handlers.preparations.append(set_up_child)
    if conf.task_queues():
        from queuey_sync.contrib.django.task_jobs import register  # noqa: PLC0415 - may be absent

        register(app)


def _on_setting_changed(*, setting: str, **_: Any) -> None:  # noqa: ANN401 - as Django sends it
    """Follow ``override_settings`` in tests."""
    if setting in ("QUEUEY", "TASKS"):
        install()
