"""An app to run as a process, to be stopped and killed: each job says what its runs come to.

Runs leave marks in a file, one line each and written in one piece, so that they survive any end of
the process. `rounds.py` starts it, and compares the marks with what is on the broker.
"""

import json
import os
import time

import tenacity

from queuey_sync import (
    Deferred,
    Fatal,
    Job,
    JobContext,
    QueueSet,
    Queuey,
    Retryable,
    RetryPolicy,
    Stopping,
    queue,
)
from queuey_sync.retrying import sleep_until_stop, stop_when_stopping

MARKS_FILE = os.environ.get("MARKS_FILE", os.devnull)
DELAY = os.environ.get("DELAY", "1s")
"""Of every retry and every deferral."""


class Queues(QueueSet, prefix=os.environ.get("PREFIX", "program")):
    """One queue, so that one prefetch bounds what may be unacked."""

    WORK = queue(prefetch=16, retry=RetryPolicy.fixed(100, DELAY))


class Planned(Job[Queues], queue=Queues.WORK, name="test.Planned"):
    """A job that knows the outcome of each of its runs.

    `succeed`, `retry`, `defer` and `die` are decided after `seconds` of sleep. `patient` retries
    something by itself for so long, then succeeds; `late-defer` and `late-retry` wait for the stop.
    """

    number: int
    outcomes: list[str]
    seconds: float


app = Queuey(Queues)


@app.handler
def run(job: Planned, ctx: JobContext) -> None:
    """Do what the job says, between two marks."""
    turn = ctx.attempt - 1 + ctx.deferrals
    _mark("start", job.number, turn)
    outcome = job.outcomes[turn]
    try:
        _take_time(outcome, job.seconds, ctx)
    except Stopping:
        _mark("cut", job.number, turn)
        raise
    _mark("end", job.number, turn)
    match outcome:
        case "retry" | "late-retry":
            raise Retryable("as planned")
        case "defer" | "late-defer":
            raise Deferred(DELAY, "as planned")
        case "die":
            raise Fatal("as planned")


def _take_time(outcome: str, seconds: float, ctx: JobContext) -> None:
    if outcome == "patient":
        retrying = tenacity.Retrying(
            retry=tenacity.retry_always,
            wait=tenacity.wait_fixed(seconds),
            sleep=sleep_until_stop(ctx.watcher),
            stop=stop_when_stopping(ctx.watcher) | tenacity.stop_after_attempt(2),
            retry_error_callback=lambda _: None,
        )
        retrying(lambda: None)
    elif outcome.startswith("late-"):
        ctx.watcher.wait()
    else:
        time.sleep(seconds)


def _mark(event: str, number: int, turn: int) -> None:
    line = json.dumps([event, number, turn]) + "\n"
    with open(MARKS_FILE, "ab", buffering=0) as marks:  # noqa: PTH123 - Path.open may not buffer 0
        marks.write(line.encode())
