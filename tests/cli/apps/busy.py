"""Jobs that compute in pure Python, and never let go of the interpreter by themselves."""

import os
import time

from queuey_sync import Job, QueueSet, Queuey, queue


class Queues(QueueSet, prefix="busy"):
    """One queue."""

    WORK = queue(prefetch=8)


class Burn(Job[Queues], queue=Queues.WORK, name="busy.Burn"):
    """Computes for so many seconds of its own thread."""

    seconds: float


app = Queuey(Queues, url="memory:")


@app.handler
def burn(job: Burn) -> None:
    """In a loop that calls nothing which waits."""
    until = time.monotonic() + job.seconds
    while time.monotonic() < until:
        sum(range(1_000))


if "BUSY_SECONDS" in os.environ:
    app.enqueue_many([Burn(float(os.environ["BUSY_SECONDS"])) for _ in range(8)])
