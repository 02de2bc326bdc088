"""The setting ``QUEUEY``, and the `Queuey` app that it names.

It reads settings when it is asked, and imports no models. What is wrong with them is said by
`checks.py`.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import django.conf
from django.core.exceptions import ImproperlyConfigured

from queuey_sync.app import Queuey
from queuey_sync.queues import QueueSet, queue

TASK_BACKEND = "queuey_sync.contrib.django.tasks.QueueyBackend"
KEYS = ("APP", "URL", "DEFAULTS")

_tasks_apps: dict[tuple[str, ...], Queuey[Any]] = {}
"""The app of a site that has tasks alone, by the names of its queues. Filled when Django is set up,
by the one thread that there is."""


@dataclass(frozen=True, slots=True)
class Conf:
    """What the setting holds; each key may be left out.

    Attributes:
        app: Where the `Queuey` app is, such as ``shop.queues:app``. A site that uses nothing but
            Django's tasks needs none.
        url: Where jobs wait, in place of the app's own URL.
        defaults: What options of ``manage.py queuey`` are set to where neither the command line
            nor the environment sets them.
    """

    app: str | None = None
    url: str | None = None
    defaults: Mapping[str, object] = field(default_factory=dict)


def read() -> Conf:
    """What the setting holds now.

    Raises:
        ImproperlyConfigured: It is no dictionary, or has a key that does not exist.
    """
    given = getattr(django.conf.settings, "QUEUEY", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"QUEUEY: expected a dictionary, got {given!r}")
    for key in given:
        if key not in KEYS:
            raise ImproperlyConfigured(f"QUEUEY: unknown key {key!r}; there are {', '.join(KEYS)}")
    if not isinstance(given.get("DEFAULTS", {}), Mapping):
        raise ImproperlyConfigured("QUEUEY['DEFAULTS']: expected a dictionary of options")
    return Conf(given.get("APP"), given.get("URL"), given.get("DEFAULTS", {}))


def current_app() -> Queuey[Any]:
    """The app that ``QUEUEY["APP"]`` names, or one for the queues of ``TASKS``.

    Raises:
        ImproperlyConfigured: There is no such app.
    """
    reference = read().app
    if reference is not None:
        return _find(reference)
    names = tuple(name for queues in task_queues().values() for name in queues)
    if not names:
        raise ImproperlyConfigured(
            "QUEUEY['APP'] is missing: name your Queuey app, such as 'shop.queues:app', or QUEUES"
            " in TASKS"
        )
    return _app_of_tasks(tuple(dict.fromkeys(names)))


def task_queues() -> dict[str, list[str]]:
    """The queues of each back-end in ``TASKS`` that is ours, by its alias."""
    backends: Mapping[str, Mapping[str, Any]] = getattr(django.conf.settings, "TASKS", {})
    return {
        alias: _names(alias, params.get("QUEUES", ["default"]))
        for alias, params in (backends or {}).items()
        if params.get("BACKEND") == TASK_BACKEND
    }


def _names(alias: str, queues: object) -> list[str]:
    if isinstance(queues, str) or not isinstance(queues, Iterable):
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}]['QUEUES']: expected a list of names, got {queues!r}"
        )
    return list(queues)


def _find(reference: object) -> Queuey[Any]:
    where = f"QUEUEY['APP'] = {reference!r}"
    module_name, colon, attribute = (
        reference.partition(":") if isinstance(reference, str) else [""] * 3
    )
    names = [*module_name.split("."), *attribute.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise ImproperlyConfigured(f"{where}: expected 'module:app', such as 'shop.queues:app'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise  # a fault inside the module, whose traceback says most
        raise ImproperlyConfigured(f"{where}: there is no module `{error.name}`") from None
    try:
        found = attrgetter(attribute)(module)
    except AttributeError:
        raise ImproperlyConfigured(f"{where}: there is no `{attribute}` in {module_name}") from None
    if not isinstance(found, Queuey):
        raise ImproperlyConfigured(f"{where}: this is no Queuey app, but {type(found).__name__}")
    return found


def _app_of_tasks(names: tuple[str, ...]) -> Queuey[Any]:
    if names not in _tasks_apps:
        members = {f"queue_{name}": queue(name=name) for name in names}
        make: Any = QueueSet  # checkers do not know that an enum can be made by a call
        queues = make("TaskQueues", members, module=__name__)
        # A child process finds it under this name; it has the same settings.
        globals()["TaskQueues"] = queues
        _tasks_apps[names] = Queuey(queues)
    return _tasks_apps[names]
