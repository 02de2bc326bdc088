"""Work for drains: each job does what its `do` says, and marks it. Queues under SHOP_PREFIX."""

import os
import time
from pathlib import Path

from queuey_sync import Deferred, Fatal, Job, QueueSet, Queuey, Retryable, RetryPolicy, queue


class Queues(QueueSet, prefix=os.environ.get("SHOP_PREFIX", "batch")):
    """Two queues."""

    FIRST = queue(prefetch=50, retry=RetryPolicy.fixed(2, "1s"))
    SECOND = queue(prefetch=4)


class Do(Job[Queues], queue=Queues.FIRST, name="batch.Do"):
    """Does one thing."""

    do: str = "nothing"
    seconds: float = 0.0


class Then(Job[Queues], queue=Queues.SECOND, name="batch.Then"):
    """Follows another job."""


app = Queuey(Queues)


@app.handler
def act(job: Do) -> None:
    """Do it."""
    _mark(job.do)
    time.sleep(job.seconds)
    match job.do:
        case "fail":
            raise Retryable("no luck")
        case "defer":
            raise Deferred("30s", "later")
        case "defer shortly":
            if _times("defer shortly") == 1:
                raise Deferred("1s", "soon")
        case "die":
            raise Fatal("no use")
        case "follow":
            app.enqueue(Then())
        case "again":
            app.enqueue(job)


@app.handler
def then(_: Then) -> None:
    """Leave a mark."""
    _mark("followed")


def _times(text: str) -> int:
    return Path(os.environ["SHOP_MARKS"]).read_text(encoding="utf-8").splitlines().count(text)


def _mark(text: str) -> None:
    with Path(os.environ["SHOP_MARKS"]).open("a", encoding="utf-8") as marks:
        marks.write(f"{text}\n")
