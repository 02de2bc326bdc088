"""``queuey-sync dead``: look into the dead letters of a queue, requeue, drop or export them.

What makes it safe is in `observe/dead_letters.py` and in the backends; here is only what people
type and see.
"""

import base64
import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any

import click

from queuey_sync.app import Queuey
from queuey_sync.backends.memory.backend import MemoryBackend
from queuey_sync.cli.exits import Exit
from queuey_sync.cli.options import Command, help_option, option, takes_app, to_time_limit
from queuey_sync.cli.progress import progress_bar
from queuey_sync.cli.reporting import columns, rough, say, show
from queuey_sync.cli.signals import Signals
from queuey_sync.cli.working import select_queue
from queuey_sync.observe.dead_letters import DeadJob, DeadLetters

_PAGE = 50
"""How many `list` shows without ``--limit``."""
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|m)")


@click.group(add_help_option=False)
@help_option
def dead() -> None:
    """Look into the dead letters of a queue; requeue, drop or export them.

    Looking changes nothing, and can be interrupted at any moment. On RabbitMQ others do not see,
    meanwhile, what was looked at.
    """


class _Stopped(Exception):
    """A signal has asked for the end."""


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which dead letters the options mean."""

    job_type: str | None
    reason: str | None
    older_than: timedelta | None
    newer_than: timedelta | None
    attempt: int | None
    job_id: str | None
    malformed: bool

    def __call__(self, job: DeadJob) -> bool:
        envelope = job.envelope
        if envelope is None:
            if self.job_type or self.attempt or self.job_id:
                return False
        elif (
            self.malformed
            or self.job_type not in (None, envelope.job_type)
            or self.attempt not in (None, envelope.attempt)
            or (self.job_id is not None and not str(envelope.job_id).startswith(self.job_id))
        ):
            return False
        return self._fits_reason(job.reason) and self._fits_age(job.age)

    def _fits_reason(self, reason: str) -> bool:
        return self.reason is None or self.reason.casefold() in reason.casefold()

    def _fits_age(self, age: timedelta | None) -> bool:
        if age is None:
            return self.older_than is None and self.newer_than is None
        return (self.older_than is None or age >= self.older_than) and (
            self.newer_than is None or age <= self.newer_than
        )


def _takes_dead_letters(command: Command) -> Command:
    """Give a command ``MODULE:APP QUEUE`` and the options that choose among its dead letters.

    The command is called with the keywords ``letters``, ``match`` and ``limit``; the app is closed
    afterwards.
    """
    options_of_command: Callable[[Command], Command] = functools.wraps(command)

    @takes_app
    @click.argument("queue")
    @option("--job-type", metavar="NAME", help="Only jobs of this name.")
    @option("--reason", metavar="TEXT", help="Only those whose reason contains this text.")
    @option(
        "--older-than",
        callback=to_time_limit,
        metavar="DURATION",
        help="Only those that died longer ago than this, such as 2h.",
    )
    @option(
        "--newer-than",
        callback=to_time_limit,
        metavar="DURATION",
        help="Only those that died since then.",
    )
    @option(
        "--attempt", type=click.IntRange(1), metavar="N", help="Only those that died at this one."
    )
    @option("--job-id", metavar="ID", help="Only the job with this id; its first characters do.")
    @option("--malformed", is_flag=True, help="Only bodies that are no jobs.")
    @option("--limit", type=click.IntRange(1), metavar="N", help="At most so many, the oldest.")
    @options_of_command
    def with_letters(app: Queuey[Any], queue: str, limit: int | None, **rest: Any) -> int | None:  # noqa: ANN401
        member = select_queue(app.queues, queue, "QUEUE")
        if isinstance(app.backend(), MemoryBackend):
            raise click.UsageError("on memory: each process has dead letters of its own")
        fields = _Filter.__dataclass_fields__
        match = _Filter(**{name: rest.pop(name) for name in fields})
        code = command(letters=app.dead_letters(member), match=match, limit=limit, **rest)
        app.close()
        return code

    return with_letters


@dead.command("list", add_help_option=False)
@_takes_dead_letters
@option("as_json", "--json", is_flag=True, help="Print one JSON document.")
@help_option
def list_(letters: DeadLetters, match: _Filter, limit: int | None, *, as_json: bool) -> None:
    """List dead letters, the oldest first: 50 of them if no other limit is given."""
    found = list(letters.find(match, limit or _PAGE))
    total = letters.count()
    if as_json:
        show(json.dumps({"dead": [_document(job) for job in found], "total": total}))
        return
    headings = ("job id", "job type", "attempt", "age", "reason")
    show("\n".join(columns(headings, [_row(job) for job in found], right=("attempt", "age"))))
    say(f"{len(found)} shown of {total} in all")


@dead.command("show", add_help_option=False)
@_takes_dead_letters
@option("as_json", "--json", is_flag=True, help="Print each as one JSON document in a line.")
@help_option
def show_(letters: DeadLetters, match: _Filter, limit: int | None, *, as_json: bool) -> None:
    """Show dead letters whole: payload, reason, history; one if no other limit is given."""
    count = 0
    for job in letters.find(match, limit or 1):
        count += 1
        show(json.dumps(_document(job)) if as_json else "\n".join(_details(job)))
    if not count:
        raise click.ClickException("no such dead letter")


@dead.command(add_help_option=False)
@_takes_dead_letters
@option("payloads", "--payloads", is_flag=True, help="Only the jobs' own fields, for `enqueue`.")
@help_option
def export(letters: DeadLetters, match: _Filter, limit: int | None, *, payloads: bool) -> None:
    """Print dead letters as JSON, one a line; they stay where they are.

    Payloads of one job type are what `queuey-sync enqueue` reads.
    """
    for job in letters.find(match, limit):
        if payloads:
            if job.envelope is not None:
                show(bytes(job.envelope.payload).decode())
        else:
            show(json.dumps(_document(job)))


@dead.command(add_help_option=False)
@_takes_dead_letters
@option(
    "--rate",
    callback=lambda _context, _parameter, value: _to_rate(value),
    metavar="N/s",
    help="At most so many a second, or a minute: 50/s, 30/m.",
)
@option("--payload", metavar="JSON", help="The job's fields, in place of what they were.")
@option("--dry-run", is_flag=True, help="Only count.")
@help_option
@click.pass_obj
def requeue(
    signals: Signals,
    letters: DeadLetters,
    match: _Filter,
    limit: int | None,
    *,
    rate: float | None,
    payload: str | None,
    dry_run: bool,
) -> Exit | None:
    """Put dead letters back on their queue, as attempt 1 and under their ids.

    Each is removed when its job is safe on the queue. It can be interrupted, and run again; exits
    with 6 if a signal ended it. Bodies that are no jobs stay.
    """
    body = None if payload is None else _checked(payload)

    def is_job(job: DeadJob) -> bool:
        return job.envelope is not None and match(job)

    if dry_run:
        show(f"{_count(letters, is_job, limit)} would be requeued")
        return None

    def work(each: Callable[[int], object]) -> object:
        return letters.requeue(is_job, limit=limit, rate=rate, payload=body, each=each)

    return _carry_out(signals, letters, limit, work, ("requeueing", "requeued"))


@dead.command(add_help_option=False)
@_takes_dead_letters
@option("--yes", is_flag=True, help="Do not ask.")
@option("--dry-run", is_flag=True, help="Only count.")
@help_option
@click.pass_obj
def drop(
    signals: Signals,
    letters: DeadLetters,
    match: _Filter,
    limit: int | None,
    *,
    yes: bool,
    dry_run: bool,
) -> Exit | None:
    """Delete dead letters, for good."""
    if dry_run:
        show(f"{_count(letters, match, limit)} would be dropped")
        return None
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise click.UsageError("nobody is there to ask: give --yes, or --dry-run to count")
        count = _count(letters, match, limit)
        click.confirm(f"drop {count} dead letters for good?", abort=True, err=True)

    def work(each: Callable[[int], object]) -> object:
        return letters.drop(match, limit=limit, each=each)

    return _carry_out(signals, letters, limit, work, ("dropping", "dropped"))


def _carry_out(
    signals: Signals,
    letters: DeadLetters,
    limit: int | None,
    work: Callable[[Callable[[int], object]], object],
    words: tuple[str, str],
) -> Exit | None:
    """Do it, with a bar, until it is done or a signal comes between two batches."""
    done = 0
    stopped: list[bool] = []  # appended to by a signal handler, on the thread that reads it
    signals.stop_with(lambda: stopped.append(True))
    total = min(letters.count(), limit or sys.maxsize)

    def each(count: int) -> None:
        nonlocal done
        done += count
        if stopped:
            raise _Stopped

    try:
        with progress_bar(words[0], lambda: (done, max(done, total))):
            work(each)
    except _Stopped:
        say(f"{done} {words[1]}; a signal ended it")
        return Exit.WORK_LEFT
    show(f"{done} {words[1]}")
    return None


def _count(letters: DeadLetters, match: Callable[[DeadJob], bool], limit: int | None) -> int:
    return sum(1 for _ in letters.find(match, limit))


def _to_rate(value: str | None) -> float | None:
    if value is None:
        return None
    found = _RATE.fullmatch(value.strip())
    rate = float(found[1]) / (60 if found[2] == "m" else 1) if found else 0.0
    if not rate:
        raise click.BadParameter(f"expected a rate such as 50/s or 30/m, got {value!r}")
    return rate


def _checked(payload: str) -> bytes:
    try:
        fields = json.loads(payload)
        return json.dumps(fields, allow_nan=False).encode()
    except ValueError as error:
        raise click.UsageError(f"--payload: {error}") from None


def _row(job: DeadJob) -> tuple[str, ...]:
    age = "-" if job.age is None else rough(max(0, int(job.age.total_seconds())))
    if job.envelope is None:
        return "-", f"({len(job.found.body)} bytes)", "-", age, job.reason
    envelope = job.envelope
    return str(envelope.job_id), envelope.job_type, str(envelope.attempt), age, job.reason


def _document(job: DeadJob) -> Mapping[str, object]:
    died_at = None if job.died_at is None else job.died_at.astimezone(UTC).isoformat()
    about = {"reason": job.reason, "died_at": died_at}
    if job.envelope is None:
        return {"body_base64": base64.b64encode(job.found.body).decode(), **about}
    fields: dict[str, object] = json.loads(job.found.body)
    return {**fields, **about}


def _details(job: DeadJob) -> Iterator[str]:
    document = dict(_document(job))
    payload = document.pop("payload", None)
    document |= {name: value for name, value in job.found.headers.items() if name == "x-death"}
    width = max(map(len, document))
    for name, value in document.items():
        yield f"{name.ljust(width)}  {value}"
    if job.envelope is None:
        yield f"{'body'.ljust(width)}  {job.found.body!r}"
    else:
        yield "payload"
        yield json.dumps(payload, indent=2, ensure_ascii=False)
    yield ""
