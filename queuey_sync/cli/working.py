"""The options of a worker, for the commands that run one; they are given the `Worker`, built.

What a worker does is none of this module's business, nor when it stops: see `commands/`.
"""

import functools
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.logs import set_up_logging
from queuey_sync.cli.options import Command, current_log, option, takes_app, to_size, to_time_limit
from queuey_sync.pools.processes import ProcessPool
from queuey_sync.queues import QueueSet
from queuey_sync.shutdown import Backoff
from queuey_sync.worker.worker import Worker

_OPTIONS = (
    option(
        "-Q",
        "--queues",
        metavar="NAMES",
        help="The queues to work on, separated by commas, with or without the prefix of their set;"
        " all of them by default.",
    ),
    option(
        "-P",
        "--pool",
        type=click.Choice(("thread", "process")),
        default="thread",
        metavar="POOL",
        help="Where handlers run: thread, the default, or process: child processes, for what"
        " computes.",
    ),
    option(
        "-c",
        "--concurrency",
        type=click.IntRange(1, 10_000),
        metavar="N",
        help="How many jobs run at once; the sum of the queues' prefetch by default, and of"
        " processes at most one for each processor.",
    ),
    option(
        "--job-timeout",
        callback=to_time_limit,
        metavar="DURATION",
        help="How long a job may run, such as 30s or 5m; without a limit by default.",
    ),
    option(
        "--soft-timeout",
        callback=to_time_limit,
        metavar="DURATION",
        help="After this time, SoftTimeout is raised in the handler.",
    ),
    option(
        "--stop-deadline",
        callback=to_time_limit,
        metavar="DURATION",
        help="How long a stop waits for the jobs that run, before it gives them back; for ever by"
        " default.",
    ),
    option(
        "--reconnect",
        is_flag=True,
        help="Connect again when the broker was lost, while jobs that run go on; without it, that"
        " ends the worker.",
    ),
    option(
        "--report-every",
        callback=to_time_limit,
        metavar="DURATION",
        help="How often what was done is counted up in the log, while anything is done; 1m by"
        " default.",
    ),
    option(
        "--status-file",
        metavar="PATH",
        help="Write to this file once a second how the worker does, for `health` and `jobs`.",
    ),
    option(
        "--start-method",
        type=click.Choice(("forkserver", "spawn")),
        metavar="METHOD",
        help="How a child process starts: forkserver, the default, or spawn.",
    ),
    option(
        "--max-jobs-per-child",
        type=click.IntRange(1),
        metavar="N",
        help="Replace a child process after this many jobs at most.",
    ),
    option(
        "--max-memory-per-child",
        callback=to_size,
        metavar="SIZE",
        help="Replace a child process that holds more after a job, such as 512MB.",
    ),
    option(
        "--child-memory-limit",
        callback=to_size,
        metavar="SIZE",
        help="A handler whose process would grow beyond this gets MemoryError.",
    ),
)
_CHILD_OPTIONS = (
    "start_method",
    "max_jobs_per_child",
    "max_memory_per_child",
    "child_memory_limit",
)


def takes_worker(command: Command) -> Command:
    """Give a command the argument ``MODULE:APP`` and all options of a worker.

    The command is called with the keyword ``worker``, which closes its backend when it has run.
    """
    options_of_command: Callable[[Command], Command] = functools.wraps(command)

    @options_of_command
    def with_worker(
        *,
        app: Queuey[Any],
        queues: str | None,
        pool: Literal["thread", "process"],
        concurrency: int | None,
        job_timeout: timedelta | None,
        soft_timeout: timedelta | None,
        stop_deadline: timedelta | None,
        reconnect: bool,
        report_every: timedelta | None,
        status_file: str | None,
        **rest: Any,  # noqa: ANN401 - those of child processes, and of the command
    ) -> int | None:
        if job_timeout is not None and soft_timeout is not None and soft_timeout >= job_timeout:
            raise click.UsageError("--soft-timeout: it must be shorter than --job-timeout")
        child_options = {name: rest.pop(name) for name in _CHILD_OPTIONS}
        worker: Worker[Any] = app.worker(
            queues=None if queues is None else select_queues(app.queues, queues),
            pool=choose_pool(pool, child_options),
            concurrency=concurrency,
            job_timeout=job_timeout,
            soft_timeout=soft_timeout,
            stop_deadline=stop_deadline,
            reconnect=Backoff("1s", max="30s") if reconnect else None,
            close_backend_on_shutdown=True,
            status_file=status_file,
            **({} if report_every is None else {"report_every": report_every}),
        )
        return command(worker=worker, **rest)

    with_options: Command = with_worker
    for add in reversed(_OPTIONS):
        with_options = add(with_options)
    return takes_app(with_options)


def choose_pool(
    pool: Literal["thread", "process"], child_options: dict[str, Any]
) -> Literal["thread"] | ProcessPool:
    """The pool that the options ask for; its children log as this process does.

    Raises:
        click.UsageError: An option of child processes is given without them.
    """
    given = {name: value for name, value in child_options.items() if value is not None}
    if pool == "process":
        log = current_log().for_children()
        return ProcessPool(**given, initializer=partial(set_up_logging, log))
    for name in given:
        raise click.UsageError(f"--{name.replace('_', '-')}: it needs --pool process")
    return pool


def select_queues(queue_set: type[QueueSet], names: str) -> list[QueueSet]:
    """The members of a queue set that a comma-separated list names.

    Raises:
        click.UsageError: A name is unknown, or fits several queues.
    """
    return [select_queue(queue_set, name.strip(), "--queues") for name in names.split(",")]


def select_queue(queue_set: type[QueueSet], name: str, argument: str) -> QueueSet:
    """The member of a queue set that a name means, with or without the prefix of the set.

    Raises:
        click.UsageError: It is unknown, or fits several queues; the text begins with the argument.
    """
    exact = queue_set.by_name(name)
    if exact is not None:
        return exact
    fitting = [member for member in queue_set if name and member.full_name.endswith(f".{name}")]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(member.full_name for member in fitting or queue_set)
    what = "several queues are called" if fitting else "the app has no queue"
    raise click.UsageError(f"{argument}: {what} {name!r}; choose from {known}")
