"""Programs on one store, to be killed: ``produce`` enqueues numbered jobs, ``work`` runs them.

Both leave marks in a file, one line each and written in one piece, so that they survive any end of
the process. `store_rounds.py` starts them and compares the marks with what is in the store.
"""

import json
import os
import signal
import sys
import time

from queuey_sync import (
    Deferred,
    Fatal,
    Job,
    JobContext,
    QueueSet,
    Queuey,
    Retryable,
    RetryPolicy,
    queue,
)

PREFETCH = 8
SLOW = 1_000_000
"""Jobs from this number on take longer than a short lease."""


class Queues(QueueSet):
    """One queue, so that one prefetch bounds what a killed worker may have in hand."""

    WORK = queue(prefetch=PREFETCH, retry=RetryPolicy.fixed(5, "100ms"))


class Numbered(Job[Queues], queue=Queues.WORK, name="test.Numbered"):
    """A job whose number says how its runs end."""

    number: int


app = Queuey(Queues)


def turns(number: int) -> list[str]:
    """How each of the runs of a job ends."""
    if number % 10 == 3:
        return ["retry", "succeed"]
    if number % 10 == 6:
        return ["defer", "succeed"]
    return ["die"] if number % 10 == 9 else ["succeed"]


@app.handler
def run(job: Numbered, ctx: JobContext) -> None:
    """Mark the run, then end as its number says."""
    turn = ctx.attempt - 1 + ctx.deferrals
    mark("start", job.number, turn)
    time.sleep(3 if job.number >= SLOW else 0.002)
    match turns(job.number)[turn]:
        case "retry":
            raise Retryable("as planned")
        case "defer":
            raise Deferred("100ms", "as planned")
        case "die":
            raise Fatal("as planned")
    mark("end", job.number, turn)


def mark(event: str, number: int, turn: int = 0) -> None:
    """Write a line that survives any end of this process."""
    line = json.dumps([event, number, turn, os.getpid(), time.time()]) + "\n"
    with open(os.environ["MARKS_FILE"], "ab", buffering=0) as marks:  # noqa: PTH123 - as it says
        marks.write(line.encode())


def produce(first: int, count: int, pause: float = 0) -> None:
    """Enqueue jobs one by one, each marked when it is confirmed."""
    for number in range(first, first + count):
        app.enqueue(Numbered(number))
        mark("confirmed", number)
        time.sleep(pause)
    app.close()


def work() -> None:
    """Run jobs until a signal comes."""
    worker = app.worker(concurrency=4)
    signal.signal(signal.SIGTERM, lambda *_: worker.handle().shutdown())
    mark("listening", os.getpid())
    try:
        worker.run()
    finally:
        mark("failures", worker.handle().settle_failures())
        app.close()


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        produce(int(sys.argv[2]), int(sys.argv[3]), *map(float, sys.argv[4:]))
    else:
        work()
