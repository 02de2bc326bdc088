"""The tasks of the site, of Django's own framework or of the package that stands in for it."""

import os
from pathlib import Path
from typing import Any

import django

from queuey_sync import Deferred, current_job

if django.VERSION >= (6, 0):
    from django.tasks import TaskContext, task
else:
    from django_tasks import TaskContext, task


def _mark(text: str) -> None:
    with Path(os.environ["THINGS_MARKS"]).open("a") as marks:
        marks.write(f"{text}\n")


@task
def note(*args: Any, **kwargs: Any) -> None:
    """Leave a mark."""
    _mark(f"note {args} {kwargs}")


@task(queue_name="flat")
def note_on_flat(text: str) -> None:
    """Leave a mark, from a queue without levels."""
    _mark(text)


@task
async def note_async(text: str) -> None:
    """Leave a mark, in a coroutine."""
    _mark(text)


@task(takes_context=True)
def note_context(context: TaskContext) -> None:
    """Leave a mark that says what the context says."""
    job = current_job()
    same = job is not None and context.task_result.id == str(job.job_id)
    _mark(f"attempt {context.attempt} own id {same}")


@task
def fail() -> None:
    """Fail."""
    raise ValueError("no good")


@task
def put_off() -> None:
    """Ask for later."""
    raise Deferred("1h")


def no_task() -> None:
    """Not for workers."""
    _mark("this must never run")
