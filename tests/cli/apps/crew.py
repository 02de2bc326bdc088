"""Jobs for child processes, on `memory:`: CREW has their JSON, which the parent enqueues."""

import json
import logging
import multiprocessing
import os
import time
from pathlib import Path

from queuey_sync import Job, QueueSet, Queuey, RetryPolicy, SoftTimeout, queue


class Queues(QueueSet, prefix="crew"):
    """One queue."""

    WORK = queue(prefetch=4, retry=RetryPolicy.none())


class Task(Job[Queues], queue=Queues.WORK, name="crew.Task"):
    """Does one thing."""

    do: str


app = Queuey(Queues)


@app.handler
def work(task: Task) -> None:
    """Do it."""
    match task.do:
        case "log":
            for length in (10, 3_000, 20_000):
                for _ in range(30):
                    logging.getLogger("crew").info("%s", "x" * length)
        case "die":
            os._exit(3)
        case "sleep":
            _mark("start")
            time.sleep(600)
        case "soften":
            try:
                time.sleep(600)
            except SoftTimeout:
                _mark("softened")
        case _:
            _mark(f"{task.do} in a child: {multiprocessing.parent_process() is not None}")


@app.on_start
def begin() -> None:
    """Fail, if asked to."""
    if "FAIL" in os.environ:
        raise RuntimeError("no model")


def _mark(text: str) -> None:
    with Path(os.environ["SHOP_MARKS"]).open("a") as file:
        file.write(text + "\n")


if multiprocessing.parent_process() is None:
    app.connect_to("memory:")
    for do in json.loads(os.environ.get("CREW", "[]")):
        app.enqueue(Task(do))
