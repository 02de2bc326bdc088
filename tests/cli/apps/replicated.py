"""Queues that a cluster keeps on several nodes; each job leaves its number when it is through."""

import os
from pathlib import Path

from queuey_sync import Deferred, Job, JobContext, QueueSet, Queuey, Retryable, RetryPolicy, queue


class Queues(QueueSet, prefix="replicated", kind="quorum"):
    """One queue, and what its retries and dead letters need."""

    WORK = queue(prefetch=16, retry=RetryPolicy.fixed(max_attempts=5, delay="1s"))


class Count(Job[Queues], queue=Queues.WORK, name="replicated.Count"):
    """Every tenth is retried once, every other tenth deferred."""

    number: int


app = Queuey(Queues)


@app.handler
def count(job: Count, ctx: JobContext) -> None:
    """Leave a mark."""
    if job.number % 10 == 0 and ctx.attempt == 1:
        raise Retryable("once more")
    if job.number % 10 == 5 and not ctx.deferrals:
        raise Deferred("1s", "a little later")
    with Path(os.environ["SHOP_MARKS"]).open("a", encoding="utf-8") as marks:
        marks.write(f"{job.number}\n")
