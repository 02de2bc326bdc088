"""``queuey-sync enqueue``: publish one job from the command line, or many from standard input."""

import itertools
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar
from uuid import UUID

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.lines import BadLine, Line, batches, decode, reason, spans
from queuey_sync.cli.options import option, takes_app, to_duration
from queuey_sync.cli.reporting import say
from queuey_sync.cli.signals import Signals
from queuey_sync.errors import PublishError, SerializationError
from queuey_sync.jobs import Job, JobType
from queuey_sync.queues import QueueSet

Q = TypeVar("Q", bound=QueueSet)

_CHUNK = 65536
"""Bytes read at a time; also bounds how many jobs are unconfirmed at once."""


@click.command()
@takes_app
@click.argument("job_name")
@click.argument("json", required=False)
@option(
    "--after",
    callback=to_duration,
    metavar="DURATION",
    help="Make the jobs visible only after this time, such as 30s or 2h.",
)
@option("--correlation-id", metavar="TEXT", help="Put this into the envelope of each job.")
@click.pass_obj
def enqueue(
    signals: Signals,
    *,
    app: Queuey[Any],
    job_name: str,
    json: str | None,
    after: timedelta | None,
    correlation_id: str | None,
) -> None:
    """Publish jobs of the type JOB_NAME, and print their ids.

    JSON holds the fields of one job, such as '{"to": "ada@example.org"}'. Without it, or with - in
    its place, each line of standard input is a job, published as lines arrive. At a line that is no
    such job the command ends: the jobs before it are published, and nothing from it on.
    """
    publishing = Publishing(app, find_job_type(app.queues, job_name), after, correlation_id)
    if json is None or json == "-":
        _publish_lines(publishing, signals)
    else:
        try:
            job = publishing.job_type.decode(json.encode(errors="surrogateescape"))
        except SerializationError as error:
            raise click.UsageError(f"JSON: {reason(error)}") from None
        _print_ids(publishing.publish([job]))
    app.close()


@dataclass(frozen=True, slots=True)
class Publishing(Generic[Q]):
    """How the jobs of one command are published."""

    app: Queuey[Q]
    job_type: JobType
    after: timedelta | None = None
    correlation_id: str | None = None

    def publish(self, jobs: list[Job[Q]]) -> list[UUID]:
        """Publish jobs: together if nothing is asked for that only single ones can have."""
        if self.after is not None:
            return [self.app.enqueue_after(job, self.after, self.correlation_id) for job in jobs]
        if self.correlation_id is not None:
            return [self.app.enqueue(job, self.correlation_id) for job in jobs]
        return self.app.enqueue_many(jobs)


def find_job_type(queue_set: type[QueueSet], name: str) -> JobType:
    """The job type of this name, out of all declared for a queue set, with a handler or without.

    Raises:
        click.UsageError: There is none; the text lists those that there are.
    """
    known = {
        job_type.name: job_type
        for job_type in _declared_under(Job)
        if isinstance(job_type.queue, queue_set)
    }
    try:
        return known[name]
    except KeyError:
        have = f"choose from {', '.join(sorted(known))}" if known else "it declares no job"
        raise click.UsageError(f"the app has no job {name!r}; {have}") from None


def _declared_under(base: type[Job[Any]]) -> Iterator[JobType]:
    for job_class in base.__subclasses__():
        if "__queuey__" in vars(job_class):
            yield job_class.__queuey__
        yield from _declared_under(job_class)


def _publish_lines(publishing: Publishing[Any], signals: Signals) -> None:
    if sys.stdin is None:
        raise click.UsageError("standard input is closed")
    if sys.stdin.isatty():
        say("reading jobs from the terminal, one JSON object a line; end with Ctrl-D")
    published = 0
    under_way: list[Line] = []
    with _progress(sys.stdin.fileno()) as bar:

        def finish() -> None:  # inside a signal handler
            if bar:
                bar.render_finish()
            doubt = ""
            if under_way:
                doubt = f", and some of lines {under_way[0].number}-{under_way[-1].number} may be"
            say(f"{_jobs(published)} enqueued{doubt}")

        signals.finish_with(finish)
        for lines, size in batches(partial(os.read, sys.stdin.fileno(), _CHUNK)):
            jobs, bad = decode(publishing.job_type, lines)
            under_way = lines[: len(jobs)]
            ids = _publish_batch(publishing, jobs, lines, published)
            published, under_way = published + len(ids), []
            if bar and sys.stdout.isatty():
                click.echo("\r\x1b[K", nl=False, err=True)  # the ids go where the bar was
            _print_ids(ids)
            if bar:
                bar.update(size)
            if bad is not None:
                raise _refused(bad, published)
    say(f"{_jobs(published)} enqueued")


def _publish_batch(
    publishing: Publishing[Any], jobs: list[Job[Any]], lines: list[Line], published: int
) -> list[UUID]:
    """Publish the jobs of the first of these lines; when that fails, say what became of them."""
    if not jobs:
        return []
    last = lines[len(jobs) - 1].number
    try:
        return publishing.publish(jobs)
    except PublishError as error:
        failed = [lines[index].number for index in error.failures]
        if failed:
            say(
                f"{_jobs(published + len(jobs) - len(failed))} enqueued; not taken were those of"
                f" lines {spans(failed)}, and nothing after line {last} was tried"
            )
        raise


def _refused(bad: BadLine, published: int) -> click.UsageError:
    return click.UsageError(
        f"line {bad.number}: {reason(bad.error)};"
        f" enqueued: {_jobs(published)} before it, none from it on"
    )


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _print_ids(ids: list[UUID]) -> None:
    if not ids:
        return
    try:
        click.echo("\n".join(map(str, ids)))
    except BrokenPipeError:
        # Or the flush at the end of the process would fail once more, with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.ClickException(
            f"standard output was closed; not all ids of the last {_jobs(len(ids))} were read,"
            " and nothing after them was enqueued"
        ) from None


def _progress(source: int) -> AbstractContextManager[Any]:
    """A progress bar if standard error is a terminal, by bytes where those are known; or None."""
    if not sys.stderr.isatty() or os.isatty(source):
        return nullcontext()
    about = os.fstat(source)
    size = about.st_size if stat.S_ISREG(about.st_mode) else None
    return click.progressbar(itertools.count(), size, label="enqueuing", file=sys.stderr)
