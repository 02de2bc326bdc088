"""A small Flask site that enqueues; run by gunicorn and uWSGI, and its jobs by ``drain``."""

import os
import threading
import time
from pathlib import Path

from flask import Flask

from queuey_sync import Job, QueueSet, Queuey, QueueyError, queue


class Queues(QueueSet, prefix=os.environ["SITE_PREFIX"]):
    """The queues of this site."""

    MARKS = queue()


class Mark(Job[Queues], queue=Queues.MARKS, name="site.mark"):
    """Leaves a line."""

    number: int


app = Queuey(Queues, os.environ["SITE_URL"], publish_timeout=os.environ["SITE_LIMIT"])
web = Flask(__name__)


@app.handler
def mark(job: Mark) -> None:
    """Append the number to a file."""
    with Path(os.environ["SITE_MARKS"]).open("a") as file:
        file.write(f"{job.number}\n")


@web.get("/enqueue/<int:number>")
def enqueue(number: int) -> tuple[dict[str, object], int]:
    """200 when the job is safe, 503 with the name of the error when it is not; and the time."""
    began = time.monotonic()
    error = None
    try:
        app.enqueue(Mark(number))
    except QueueyError as raised:
        error = type(raised).__name__
    took = time.monotonic() - began
    return {"took": took, "error": error, "pid": os.getpid()}, 503 if error else 200


@web.get("/threads")
def threads() -> dict[str, object]:
    """The library's threads of this process."""
    names = [thread.name for thread in threading.enumerate()]
    return {"names": [name for name in names if name.startswith("queuey")]}
