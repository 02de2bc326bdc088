"""``queuey-sync health`` and ``jobs``: read the status file of a worker; for probes and for people.

A probe runs every few seconds, so this imports click and the standard library, and no app.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence

import click

from queuey_sync.observe.status import Status, read_status

Command = Callable[..., int]
_FAILED = 1


def _flag(name: str, text: str, *parameter: str) -> Callable[[Command], Command]:
    """As `queuey_sync.cli.options.option`, which imports too much for a probe."""
    variable = f"QUEUEY_{name.removeprefix('--').upper()}"
    return click.option(
        *parameter, name, is_flag=True, envvar=variable, show_envvar=True, help=text
    )


@click.command()
@click.argument("path", metavar="STATUS_FILE", envvar="QUEUEY_STATUS_FILE")
@_flag("--ready", "Ask whether it takes jobs now.")
@_flag("--live", "Ask whether it is well; the default.")
@click.help_option("-h", "--help", help="Show this message and exit.")
def health(path: str, *, ready: bool, live: bool) -> int:
    """Say whether a worker that was started with --status-file is well: exit code 0, or 1 and why.

    Not live: it hangs or is gone, its consumer thread stands still, or all of its slots are held by
    jobs over their time limit. Not ready: that, or it is starting, connecting or stopping.
    """
    if ready and live:
        raise click.UsageError("--live or --ready, not both")
    status = _read(path)
    now = time.monotonic()
    reason = status.why_not_ready(now) if ready else status.why_not_live(now)
    click.echo(reason or f"worker {status.pid} is {status.state}; running jobs: {len(status.jobs)}")
    return _FAILED if reason else 0


@click.command()
@click.argument("path", metavar="STATUS_FILE", envvar="QUEUEY_STATUS_FILE")
@_flag("--json", "Print one JSON document.", "as_json")
@click.help_option("-h", "--help", help="Show this message and exit.")
def jobs(path: str, *, as_json: bool) -> int:
    """Show what runs on a worker that was started with --status-file, and what was done."""
    status = _read(path)
    now = time.monotonic()
    if as_json:
        running = [
            {
                "job_id": job.job_id,
                "job_type": job.job_type,
                "queue": job.queue,
                "attempt": job.attempt,
                "seconds": round(now - job.began, 3),
            }
            for job in status.jobs
        ]
        about = {"state": status.state, "pid": status.pid, "concurrency": status.concurrency}
        done = {"counts": status.counts, "settle_failures": status.settle_failures}
        click.echo(json.dumps({**about, "overdue": status.overdue, "jobs": running, **done}))
        return 0
    for job in sorted(status.jobs, key=lambda one: one.began):
        about_job = f"{job.job_id}  {job.job_type}  on {job.queue}, attempt {job.attempt}"
        click.echo(f"{about_job}, for {now - job.began:.1f} s")
    for queue, counts in status.counts.items():
        click.echo(f"{queue}: " + ", ".join(f"{count} {end}" for end, count in counts.items()))
    click.echo(
        f"worker {status.pid} is {status.state}: {len(status.jobs)} of {status.concurrency} slots"
        f" have a job; settle failures: {status.settle_failures}"
    )
    return 0


def _read(path: str) -> Status:
    try:
        return read_status(path)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def probe(arguments: Sequence[str]) -> int:
    """Run one of the two without the rest of the command line, and return the exit code."""
    command = {"health": health, "jobs": jobs}[arguments[0]]
    try:
        code: int | None = command.main(
            list(arguments[1:]), prog_name=f"queuey-sync {arguments[0]}", standalone_mode=False
        )
    except click.ClickException as error:
        sys.stderr.write(f"queuey-sync: {error.format_message()}\n")
        return error.exit_code
    return code or 0
