"""Django's tasks as jobs: one job class for each queue of the site's app, and what runs them.

The framework is Django's own from 6.0 on, and the package ``django-tasks`` before; only this module
knows which. How a task becomes such a job is in `tasks.py`.
"""

import socket
import sys
import types
from datetime import UTC, datetime
from os import getpid
from typing import TYPE_CHECKING, Any

import django
from django.utils import timezone
from django.utils.module_loading import import_string

from queuey_sync.app import Queuey
from queuey_sync.context import JobContext
from queuey_sync.errors import Deferred, Fatal, Stopping
from queuey_sync.jobs import Job
from queuey_sync.observe.escaping import traceback_of
from queuey_sync.queues import QueueSet

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.signals import task_enqueued, task_finished, task_started

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskResult",
    "TaskResultStatus",
    "job_class",
    "register",
    "run_task",
    "task_enqueued",
]


class TaskFields:
    """The fields of a job that is a task; see `job_class`."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    queue_name: str
    priority: int
    run_after: datetime | None


def job_class(member: QueueSet) -> Any:  # noqa: ANN401 - a class of its own for each queue
    """The job class of the tasks on a queue, made when it is first asked for.

    A child process finds it in this module, by its name; so it is there before handlers are
    unpickled, because `register` has asked for all of them.
    """
    name = f"Task on {member.full_name.replace('.', '/')}"  # a dot would look for a part of a class
    module = sys.modules[__name__]
    found = getattr(module, name, None)
    if found is None or found.__queuey__.queue is not member:
        keywords = {"queue": member, "name": f"django.task:{member.full_name}"}

        def fill(namespace: dict[str, Any]) -> None:
            fields = dict(TaskFields.__annotations__)
            namespace.update(__module__=__name__, __qualname__=name, __annotations__=fields)

        base: Any = Job  # for checkers, this is of one certain queue set
        found = types.new_class(name, (base[type(member)],), keywords, fill)
        setattr(module, name, found)
    return found


def register(app: Queuey[Any]) -> None:
    """Have an app run the tasks that are on its queues."""
    known = {handler.job_type.cls for handler in app.handlers}
    queues: type[QueueSet] = app.queues
    for member in queues:
        if job_class(member) not in known:
            app.handlers.register(job_class(member), run_task)


def run_task(job: Any, context: JobContext) -> None:  # noqa: ANN401 - of a class that was made here
    """Run a task, and tell Django's signals of it; its result is kept nowhere."""
    result = _result_of(job, context)
    args = [TaskContext(task_result=result), *job.args] if result.task.takes_context else job.args
    task_started.send_robust(BaseTaskBackend, task_result=result)
    try:
        result.task.call(*args, **job.kwargs)
    except BaseException as error:
        if _is_the_end(error, context):
            kind = type(error)
            path = f"{kind.__module__}.{kind.__qualname__}"
            fault = TaskError(exception_class_path=path, traceback=traceback_of(error))
            result.errors.append(fault)
            _finish(result, TaskResultStatus.FAILED)
        raise
    _finish(result, TaskResultStatus.SUCCESSFUL)


def _is_the_end(error: BaseException, context: JobContext) -> bool:
    """Whether the task will not run again after this."""
    if isinstance(error, Deferred | Stopping):
        return False
    return isinstance(error, Fatal) or context.is_last_attempt


def _finish(result: "TaskResult[..., Any]", status: TaskResultStatus) -> None:
    object.__setattr__(result, "finished_at", timezone.now())
    object.__setattr__(result, "status", status)
    task_finished.send_robust(BaseTaskBackend, task_result=result)


def _result_of(job: Any, context: JobContext) -> "TaskResult[..., Any]":  # noqa: ANN401 - as above
    try:
        task = import_string(job.task)
    except ImportError as error:
        raise Fatal(f"there is no task {job.task}: {error}") from error
    if not isinstance(task, Task):  # anybody who can publish could name any function
        raise Fatal(f"{job.task} is no task")
    now = timezone.now()
    return TaskResult(
        task=task.using(
            backend=job.backend,
            queue_name=job.queue_name,
            priority=job.priority,
            run_after=job.run_after,
        ),
        id=str(context.job_id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=_enqueued_at(context),
        started_at=now,
        finished_at=None,
        last_attempted_at=now,
        args=job.args,
        kwargs=job.kwargs,
        backend=job.backend,
        errors=[],
        worker_ids=[f"{socket.gethostname()}:{getpid()}"] * context.attempt,
    )


def _enqueued_at(context: JobContext) -> datetime:
    at = datetime.fromtimestamp(context.enqueued_at_ms / 1000, UTC)
    return at if timezone.is_aware(timezone.now()) else timezone.make_naive(at, UTC)
