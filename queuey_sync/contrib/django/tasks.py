"""`QueueyBackend`: Django's tasks, on the queues of the site's `Queuey` app.

A task is published as a job, and ``manage.py queuey worker`` runs it; `task_jobs.py` has both
sides' idea of that job. Results are kept nowhere, which the flags of the class say.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ParamSpec, TypeVar

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils import timezone

from queuey_sync.app import Queuey
from queuey_sync.contrib.django.conf import current_app
from queuey_sync.contrib.django.on_commit import Publication, publish_on_commit
from queuey_sync.contrib.django.task_jobs import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultStatus,
    job_class,
    task_enqueued,
)
from queuey_sync.errors import ConfigurationError
from queuey_sync.jobs import Job
from queuey_sync.producer import check_delay, envelope_of
from queuey_sync.queues import QueueSet

P = ParamSpec("P")
R = TypeVar("R")

_LOWEST, _HIGHEST = -100, 100
"""The priorities that Django has."""
_OPTIONS = ("ENQUEUE_ON_COMMIT", "DATABASE")


class QueueyBackend(BaseTaskBackend):
    """The back-end for ``TASKS``.

    Its name there is ``queuey_sync.contrib.django.tasks.QueueyBackend``.

    ``QUEUES`` are queues of the app that ``QUEUEY["APP"]`` names, with or without their prefix, and
    an empty list stands for all of them; without an app, they are all there is. Priorities are
    spread over the levels of a queue.

    With ``"OPTIONS": {"ENQUEUE_ON_COMMIT": True}`` a task is published when the transaction of the
    ``DATABASE``, the default one, is committed; else at once, as Django documents.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = False
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._on_commit = bool(self.options.get("ENQUEUE_ON_COMMIT", False))
        self._database: str | None = self.options.get("DATABASE")

    def enqueue(
        self, task: "Task[P, R]", args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> "TaskResult[P, R]":
        """Publish a task, or have it published on commit; its result has the id of the job.

        Raises:
            InvalidTask: It cannot run on this back-end, not with this priority, or not so late.
            QueueyError: It could not be published.
        """
        self.validate_task(task)
        app, member = current_app(), self._member(task.queue_name)
        if member is None:
            raise InvalidTask(f"Queue '{task.queue_name}' is no queue of the Queuey app.")
        if task.priority and not member.config.top_level:
            raise InvalidTask(f"Queue '{task.queue_name}' has no priorities: max_priority=0.")
        _check_time(task, app)
        result = self._result(task, args, kwargs)
        job = self._job(result, member)
        envelope = envelope_of(job, app.queues, priority=level_of(task.priority, member))
        object.__setattr__(result, "id", str(envelope.job_id))
        announce = partial(task_enqueued.send_robust, type(self), task_result=result)
        publication = Publication(app, job, envelope, task.run_after, announce)
        if self._on_commit:
            publish_on_commit(publication, using=self._database, robust=True)
        else:
            publication.publish()
        return result

    def check(self, **_: Any) -> list[checks.CheckMessage]:  # noqa: ANN401 - as Django calls it
        """What is wrong with the settings of this back-end."""
        return list(self._check())

    def _check(self) -> Iterator[checks.CheckMessage]:
        where = f"TASKS[{self.alias!r}]"
        for option in self.options:
            if option not in _OPTIONS:
                hint = f"There are {' and '.join(_OPTIONS)}."
                yield checks.Error(
                    f"{where}: unknown option {option!r}", hint, id="queuey_sync.E101"
                )
        on_commit, database = (self.options.get(option) for option in _OPTIONS)
        if not isinstance(on_commit, bool | None):
            text = f"{where}['ENQUEUE_ON_COMMIT']: expected True or False, got {on_commit!r}"
            yield checks.Error(text, id="queuey_sync.E104")
        if database is not None and database not in connections:
            text = f"{where}['DATABASE']: there is no database {database!r}"
            hint = f"There are {', '.join(connections)}."
            yield checks.Error(text, hint, id="queuey_sync.E105")
        if not apps.is_installed("queuey_sync.contrib.django"):
            text = f"{where}: its app is not installed, so no worker would run the tasks"
            hint = "Add 'queuey_sync.contrib.django' to INSTALLED_APPS."
            yield checks.Error(text, hint, id="queuey_sync.E102")
        try:
            app = current_app()
        except ImproperlyConfigured:
            return  # said by the check of QUEUEY
        queues: type[QueueSet] = app.queues
        known = ", ".join(member.full_name for member in queues)
        for name in sorted(self.queues):
            if self._member(name) is None:
                text = f"{where}: the Queuey app has no queue {name!r}"
                yield checks.Error(text, f"It has {known}.", id="queuey_sync.E103")

    def _member(self, name: str) -> QueueSet | None:
        queues: type[QueueSet] = current_app().queues
        exact = queues.by_name(name)
        fitting = [member for member in queues if member.full_name.endswith(f".{name}")]
        return exact or (fitting[0] if len(fitting) == 1 else None)

    def _job(self, result: "TaskResult[..., Any]", member: QueueSet) -> Job[Any]:
        task = result.task
        job: Job[Any] = job_class(member)(
            task=task.module_path,
            args=result.args,
            kwargs=result.kwargs,
            backend=self.alias,
            queue_name=task.queue_name,
            priority=task.priority,
            run_after=task.run_after,
        )
        return job

    def _result(
        self, task: "Task[P, R]", args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> "TaskResult[P, R]":
        """The result as the framework wants it; it refuses arguments that are no JSON."""
        return TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )


def _check_time(task: "Task[..., Any]", app: Queuey[Any]) -> None:
    if task.run_after is not None:
        try:
            check_delay(app.backend(), max(task.run_after - timezone.now(), timedelta(0)))
        except ConfigurationError as error:
            raise InvalidTask(f"run_after: {error}") from error


def level_of(priority: int, queue: QueueSet) -> int:
    """The level on a queue that stands for a priority, 0 being in the middle.

    >>> from queuey_sync import QueueSet, queue
    >>> class Queues(QueueSet):
    ...     MAIL = queue(max_priority=10)
    >>> [level_of(priority, Queues.MAIL) for priority in (-100, 0, 100)]
    [0, 5, 10]
    """
    span = _HIGHEST - _LOWEST
    return (priority - _LOWEST) * queue.config.top_level // span
