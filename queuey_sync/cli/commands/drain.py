"""``queuey-sync drain``: run an app's jobs until the queues are empty, for cron lines and scripts.

Nothing is written when all went well and nobody looks on. What "empty" means is in
`worker/drain.py`.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any, get_args

import click

from queuey_sync.cli.exits import Exit
from queuey_sync.cli.lock import held
from queuey_sync.cli.options import help_option, option, to_duration, to_time_limit
from queuey_sync.cli.progress import progress_bar
from queuey_sync.cli.reporting import say, show
from queuey_sync.cli.signals import Signals
from queuey_sync.cli.working import takes_worker
from queuey_sync.errors import QueueyError
from queuey_sync.worker.drain import DrainSummary, Total
from queuey_sync.worker.worker import Worker

_TOTALS: tuple[Total, ...] = get_args(Total)


def _take_lock(context: click.Context, _parameter: click.Parameter, path: str | None) -> None:
    """Before the app is imported, so that a second drain ends at once."""
    if path is not None:
        context.with_resource(held(path))


@click.command(add_help_option=False, context_settings={"default_map": {"log_level": "WARNING"}})
@takes_worker
@option(
    "--max-jobs", type=click.IntRange(1), metavar="N", help="Run no more than this many attempts."
)
@option(
    "--max-time",
    callback=to_time_limit,
    metavar="DURATION",
    help="Take no more jobs after this time, such as 10m; those that run are finished.",
)
@option(
    "--wait-held",
    callback=to_duration,
    metavar="DURATION",
    help="Wait for retries and deferrals that come due within this time, counted from the start;"
    " on RabbitMQ only for those that this drain placed.",
)
@option(
    "--lock",
    callback=_take_lock,
    expose_value=False,
    is_eager=True,
    metavar="FILE",
    help="Exit with 7 at once if another drain holds the lock on this file.",
)
@option(
    "--fail-on-dead", is_flag=True, help="Exit with 8 if any job was given up on in this drain."
)
@option("as_json", "--json", is_flag=True, help="Print the summary as one JSON document.")
@help_option
@click.pass_obj
def drain(
    signals: Signals,
    /,
    *,
    worker: Worker[Any],
    max_jobs: int | None,
    max_time: timedelta | None,
    wait_held: timedelta | None,
    fail_on_dead: bool,
    as_json: bool,
) -> int:
    """Run the jobs of an app until its queues are empty and nothing is in hand.

    By default only warnings and errors are logged, and nothing else is written on success without a
    terminal. Exits with 0 when the queues are empty, also if retries and deferrals are held for
    later, and with 6 if a limit or a signal ended it and jobs are left.
    """
    handle = worker.handle()
    signals.stop_with(handle.shutdown)
    signals.dump_with(handle.dump)
    began = time.monotonic()
    try:
        with progress_bar("draining", handle.progress):
            summary = worker.drain(max_jobs=max_jobs, max_time=max_time, wait_held=wait_held)
    except QueueyError:
        if as_json:
            show(_document("broker", time.monotonic() - began, _counted(worker)))
        raise
    code = _exit_code(summary, fail_on_dead=fail_on_dead)
    if as_json:
        queues = {name: asdict(queue) for name, queue in summary.queues.items()}
        show(_document(summary.ended_by, summary.seconds, queues))
    elif code or (sys.stderr is not None and sys.stderr.isatty()):
        say(_line(summary))
    return code


def _exit_code(summary: DrainSummary, *, fail_on_dead: bool) -> Exit:
    if summary.ended_by != "empty" and summary.total("left"):
        return Exit.WORK_LEFT
    if fail_on_dead and summary.total("dead"):
        return Exit.DEAD_LETTERS
    return Exit.SUCCESS


def _counted(worker: Worker[Any]) -> dict[str, dict[str, int | None]]:
    """What is known of a drain that failed: not what it left."""
    names = [config.full_name for config in worker.queues]
    counts = {name: asdict(worker.handle().counts(name)) for name in names}
    return {name: {**count, "left": None, "held": None} for name, count in counts.items()}


def _document(ended_by: str, seconds: float, queues: Mapping[str, Mapping[str, int | None]]) -> str:
    totals = {key: _sum([queue[key] for queue in queues.values()]) for key in (*_TOTALS, "held")}
    return json.dumps(
        {**totals, "seconds": round(seconds, 3), "ended_by": ended_by, "queues": queues}
    )


def _sum(counts: list[int | None]) -> int | None:
    """The sum, unless a part of it is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _line(summary: DrainSummary) -> str:
    done = ", ".join(f"{summary.total(key)} {key}" for key in _TOTALS)
    held = _sum([queue.held for queue in summary.queues.values()])
    later = "" if held == 0 else f", {'an unknown number' if held is None else held} held for later"
    return f"{done}{later}; ended by {summary.ended_by} after {summary.seconds:.1f} s"
