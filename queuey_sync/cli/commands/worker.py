"""``queuey-sync worker``: run an app's jobs until a signal stops it."""

from datetime import timedelta
from functools import partial
from typing import Any, Literal

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.logs import set_up_logging, share_log
from queuey_sync.cli.options import help_option, option, takes_app, to_size, to_time_limit
from queuey_sync.cli.signals import Signals
from queuey_sync.pools.processes import ProcessPool
from queuey_sync.queues import QueueSet


@click.command(add_help_option=False)
@takes_app
@option(
    "-Q",
    "--queues",
    metavar="NAMES",
    help="The queues to work on, separated by commas, with or without the prefix of their set;"
    " all of them by default.",
)
@option(
    "-P",
    "--pool",
    type=click.Choice(("thread", "process")),
    default="thread",
    metavar="POOL",
    help="Where handlers run: thread, the default, or process: child processes, for what computes.",
)
@option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="How many jobs run at once; the sum of the queues' prefetch by default, and of processes"
    " at most one for each processor.",
)
@option(
    "--job-timeout",
    callback=to_time_limit,
    metavar="DURATION",
    help="How long a job may run, such as 30s or 5m; without a limit by default.",
)
@option(
    "--soft-timeout",
    callback=to_time_limit,
    metavar="DURATION",
    help="After this time, SoftTimeout is raised in the handler.",
)
@option(
    "--stop-deadline",
    callback=to_time_limit,
    metavar="DURATION",
    help="How long a stop waits for the jobs that run, before it gives them back; for ever by"
    " default.",
)
@option(
    "--start-method",
    type=click.Choice(("forkserver", "spawn")),
    metavar="METHOD",
    help="How a child process starts: forkserver, the default, or spawn.",
)
@option(
    "--max-jobs-per-child",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a child process after this many jobs at most.",
)
@option(
    "--max-memory-per-child",
    callback=to_size,
    metavar="SIZE",
    help="Replace a child process that holds more after a job, such as 512MB.",
)
@option(
    "--child-memory-limit",
    callback=to_size,
    metavar="SIZE",
    help="A handler whose process would grow beyond this gets MemoryError.",
)
@help_option
@click.pass_obj
def worker(
    signals: Signals,
    /,
    *,
    app: Queuey[Any],
    queues: str | None,
    pool: Literal["thread", "process"],
    concurrency: int | None,
    job_timeout: timedelta | None,
    soft_timeout: timedelta | None,
    stop_deadline: timedelta | None,
    **child_options: object,
) -> None:
    """Run the jobs of MODULE:APP until SIGTERM, SIGINT or SIGHUP.

    Jobs that run are then finished and settled. A second signal ends the process at once, and the
    broker gives the unfinished jobs to another worker.
    """
    if job_timeout is not None and soft_timeout is not None and soft_timeout >= job_timeout:
        raise click.UsageError("--soft-timeout: it must be shorter than --job-timeout")
    work = app.worker(
        queues=None if queues is None else select_queues(app.queues, queues),
        pool=choose_pool(pool, child_options),
        concurrency=concurrency,
        job_timeout=job_timeout,
        soft_timeout=soft_timeout,
        stop_deadline=stop_deadline,
        close_backend_on_shutdown=True,
    )
    signals.stop_with(work.handle().shutdown)
    work.run()


def choose_pool(
    pool: Literal["thread", "process"], child_options: dict[str, Any]
) -> Literal["thread"] | ProcessPool:
    """The pool that the options ask for; its children log as this process does.

    Raises:
        click.UsageError: An option of child processes is given without them.
    """
    given = {name: value for name, value in child_options.items() if value is not None}
    if pool == "process":
        level = click.get_current_context().params["log_level"]
        return ProcessPool(**given, initializer=partial(set_up_logging, level, share_log()))
    for name in given:
        raise click.UsageError(f"--{name.replace('_', '-')}: it needs --pool process")
    return pool


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
