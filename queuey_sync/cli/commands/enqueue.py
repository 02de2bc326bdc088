"""``queuey-sync enqueue``: publish one job from the command line, or many from standard input."""

import itertools
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar
from uuid import UUID

import click

from queuey_sync.app import Queuey
from queuey_sync.backends.memory.backend import MemoryBackend
from queuey_sync.cli.lines import Line, batches, decode, reason, spans, without_mark
from queuey_sync.cli.options import help_option, option, takes_app, to_duration
from queuey_sync.cli.reporting import OutputLost, say, show
from queuey_sync.cli.signals import Signals
from queuey_sync.durations import format_duration
from queuey_sync.errors import PublishError, QueueyError, SerializationError
from queuey_sync.jobs import Job, JobType
from queuey_sync.queues import QueueSet

Q = TypeVar("Q", bound=QueueSet)

_CHUNK = 65536
"""Bytes read at a time; also bounds how many jobs are unconfirmed at once."""


@click.command(add_help_option=False)
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
@help_option
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
    _refuse_what_would_be_lost(app)
    _refuse_a_wait_too_long(app, after)
    publishing = Publishing(app, find_job_type(app.queues, job_name), after, correlation_id)
    if json is None or json == "-":
        _publish_lines(publishing, signals)
    else:
        try:
            job = publishing.job_type.decode(without_mark(json.encode()))
        except SerializationError as error:
            raise click.UsageError(f"JSON: {reason(error)}") from None
        _print_ids(publishing.publish([job]), "it is enqueued")
    app.close()


def _refuse_what_would_be_lost(app: Queuey[Any]) -> None:
    if isinstance(app.backend(), MemoryBackend):
        raise click.UsageError(
            "on memory: the jobs would end with this command; name the broker of the workers, with"
            " --url if the app itself says memory:"
        )
    if sys.stdout is None:
        raise click.UsageError("standard output is closed, where the ids go; give it /dev/null")


def _refuse_a_wait_too_long(app: Queuey[Any], after: timedelta | None) -> None:
    longest = app.backend().longest_delay
    if after is not None and longest is not None and after > longest:
        raise click.UsageError(
            f"--after: {format_duration(after)} is longer than the broker can hold a job, which is"
            f" {format_duration(longest)}"
        )


@dataclass(frozen=True, slots=True)
class Publishing(Generic[Q]):
    """How the jobs of one command are published."""

    app: Queuey[Q]
    job_type: JobType
    after: timedelta | None = None
    correlation_id: str | None = None

    @property
    def one_by_one(self) -> bool:
        """Whether something is asked for that only single jobs can have."""
        return self.after is not None or self.correlation_id is not None

    def publish(self, jobs: list[Job[Q]]) -> list[UUID]:
        """Publish jobs together, or the only one."""
        if not self.one_by_one:
            return self.app.enqueue_many(jobs)
        (job,) = jobs
        if self.after is None:
            return [self.app.enqueue(job, self.correlation_id)]
        return [self.app.enqueue_after(job, self.after, self.correlation_id)]


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
    done = _Done(publishing)
    with _progress(sys.stdin.fileno()) as bar:

        def finish() -> None:  # inside a signal handler
            if bar:
                bar.render_finish()
            say(done.text())

        signals.finish_with(finish)
        for lines, size in batches(partial(_read, sys.stdin.fileno(), done)):
            jobs, bad = decode(publishing.job_type, lines)
            if bar and sys.stdout.isatty():
                click.echo("\r\x1b[K", nl=False, err=True)  # the ids go where the bar was
            done.publish(jobs, lines[: len(jobs)])
            if bar:
                bar.update(size)
            if bad is not None:
                raise click.UsageError(
                    f"line {bad.number}: {reason(bad.error)};"
                    f" enqueued: {_jobs(done.published)} before it, none from it on"
                )
    say(done.text())


@dataclass(slots=True)
class _Done:
    """What has been published of the input. The main thread owns it, with its signal handler."""

    publishing: Publishing[Any]
    published: int = 0
    """How many jobs for certain."""
    under_way: list[Line] = field(default_factory=list)

    def text(self) -> str:
        """What to say when this is all."""
        doubt = ""
        if self.under_way:
            first, last = self.under_way[0].number, self.under_way[-1].number
            doubt = f", and some of lines {first}-{last} may be"
        return f"{_jobs(self.published)} enqueued{doubt}"

    def publish(self, jobs: list[Job[Any]], lines: list[Line]) -> None:
        """Publish the jobs of these lines and print their ids; say what failed of them."""
        size = 1 if self.publishing.one_by_one else max(1, len(jobs))
        for start in range(0, len(jobs), size):
            self._publish(jobs[start : start + size], lines[start : start + size])

    def _publish(self, jobs: list[Job[Any]], lines: list[Line]) -> None:
        self.under_way = lines
        try:
            ids = self.publishing.publish(jobs)
        except QueueyError as error:
            self._account_for(error, lines)
            raise
        self._took(ids, lines[-1].number)

    def _took(self, ids: list[UUID], last: int) -> None:
        self.published, self.under_way = self.published + len(ids), []
        if ids:
            _print_ids(ids, f"enqueued: {_jobs(self.published)}, and nothing after line {last}")

    def _account_for(self, error: QueueyError, lines: list[Line]) -> None:
        """Count and print what was taken nevertheless, and name the lines of the rest."""
        ids: list[UUID] = []
        failed = lines
        if isinstance(error, PublishError) and error.failures:
            ids = [one for at, one in enumerate(error.job_ids) if at not in error.failures]
            failed = [lines[at] for at in error.failures]
        self._took(ids, lines[-1].number)
        say(
            f"{_jobs(self.published)} enqueued; not confirmed: line"
            f" {spans([line.number for line in failed])}; nothing after line"
            f" {lines[-1].number} was tried"
        )


def _read(source: int, done: _Done) -> bytes:
    try:
        return os.read(source, _CHUNK)
    except OSError as error:
        raise click.UsageError(
            f"standard input cannot be read: {error.strerror}; {done.text()}"
        ) from None


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _print_ids(ids: list[UUID], enqueued: str) -> None:
    try:
        show("\n".join(map(str, ids)))
    except OutputLost as error:
        missing = f"not all ids of the last {_jobs(len(ids))} were written"
        raise OutputLost(error.why, f"{missing}; {enqueued}") from None


def _progress(source: int) -> AbstractContextManager[Any]:
    """A progress bar if standard error is a terminal, by bytes where those are known; or None."""
    if not sys.stderr.isatty() or os.isatty(source):
        return nullcontext()
    about = os.fstat(source)
    size = about.st_size if stat.S_ISREG(about.st_mode) else None
    return click.progressbar(itertools.count(), size, label="enqueuing", file=sys.stderr)
