"""Jobs that log, on `memory:`: JOBS says how many, LINES how many lines each of them logs."""

import logging
import multiprocessing
import os
from pathlib import Path

from queuey_sync import Job, QueueSet, Queuey, RetryPolicy, queue

log = logging.getLogger("scribe")


class Queues(QueueSet, prefix="scribe"):
    """One queue."""

    WORK = queue(prefetch=4, retry=RetryPolicy.none())


class Write(Job[Queues], queue=Queues.WORK, name="scribe.Write"):
    """Is logged, and marked when that is done."""

    number: int


app = Queuey(Queues)


@app.handler
def write(job: Write) -> None:
    """Log lines of many lengths, and a URL with a password."""
    log.info("no answer from amqp://ada:hidden@mq/")
    for line in range(int(os.environ["LINES"])):
        log.info("line %d of %d %s", line, job.number, "x" * (line % 300))
    with Path(os.environ["SHOP_MARKS"]).open("a") as file:
        file.write(f"{job.number}\n")


if multiprocessing.parent_process() is None:
    app.connect_to("memory:")
    for number in range(int(os.environ["JOBS"])):
        app.enqueue(Write(number))
