"""``queuey-sync worker``: run an app's jobs until a signal stops it."""

from datetime import timedelta
from typing import Any

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.options import option, takes_app, to_duration
from queuey_sync.cli.signals import Signals
from queuey_sync.queues import QueueSet


@click.command()
@takes_app
@option(
    "-Q",
    "--queues",
    metavar="NAMES",
    help="The queues to work on, separated by commas, with or without the prefix of their set;"
    " all of them by default.",
)
@option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="How many jobs run at once; the sum of the queues' prefetch by default.",
)
@option(
    "--job-timeout",
    callback=to_duration,
    metavar="DURATION",
    help="How long a job may run, such as 30s or 5m; without a limit by default.",
)
@click.pass_obj
def worker(
    signals: Signals,
    *,
    app: Queuey[Any],
    queues: str | None,
    concurrency: int | None,
    job_timeout: timedelta | None,
) -> None:
    """Run the jobs of MODULE:APP until SIGTERM, SIGINT or SIGHUP.

    Jobs that run are then finished and settled. A second signal ends the process at once, and the
    broker gives the unfinished jobs to another worker.
    """
    if job_timeout is not None and not job_timeout:
        raise click.UsageError("--job-timeout: it must be longer than zero")
    work = app.worker(
        queues=None if queues is None else select_queues(app.queues, queues),
        concurrency=concurrency,
        job_timeout=job_timeout,
        close_backend_on_shutdown=True,
    )
    signals.stop_with(work.handle().shutdown)
    work.run()


def select_queues(queue_set: type[QueueSet], names: str) -> list[QueueSet]:
    """The members of a queue set that a comma-separated list names.

    Raises:
        click.UsageError: A name is unknown, or fits several queues.
    """
    return [_select(queue_set, name.strip()) for name in names.split(",")]


def _select(queue_set: type[QueueSet], name: str) -> QueueSet:
    exact = queue_set.by_name(name)
    if exact is not None:
        return exact
    fitting = [member for member in queue_set if name and member.full_name.endswith(f".{name}")]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(member.full_name for member in fitting or queue_set)
    what = "several queues are called" if fitting else "the app has no queue"
    raise click.UsageError(f"--queues: {what} {name!r}; choose from {known}")
