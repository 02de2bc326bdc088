"""A small shop: its queues have the prefix SHOP_PREFIX, its handlers append lines to SHOP_MARKS."""

import logging
import os
import threading
import time
from pathlib import Path

from queuey_sync import Job, QueueSet, Queuey, queue

log = logging.getLogger("shop")


class Queues(QueueSet, prefix=os.environ.get("SHOP_PREFIX", "shop")):
    """Two queues, one of them under a name of its own."""

    ORDERS = queue(prefetch=4)
    MAIL = queue(name="post", prefetch=2)


class Pack(Job[Queues], queue=Queues.ORDERS, name="shop.Pack"):
    """Takes some seconds."""

    seconds: float


class Notify(Job[Queues], queue=Queues.MAIL, name="shop.Notify"):
    """Is logged."""

    to: str
    copies: int = 1


class Hang(Job[Queues], queue=Queues.ORDERS, name="shop.Hang"):
    """Ends for no one."""


class Stray(Job[Queues], queue=Queues.MAIL, name="shop.Stray"):
    """Has no handler."""


# Only a broker knows connections by name.
_NAMED = {"connection_name": os.environ["SHOP_PREFIX"]} if "SHOP_PREFIX" in os.environ else {}

app = Queuey(Queues, **_NAMED)


@app.handler
def pack(job: Pack) -> None:
    """Leave a mark, sleep, leave another one."""
    _mark("start")
    time.sleep(job.seconds)
    _mark("end")


@app.handler
def notify(job: Notify) -> None:
    """Log that it ran."""
    log.info("told %s", job.to)
    _mark(f"told {job.to}")


@app.handler
def hang(job: Hang) -> None:
    """Block where no exception from another thread reaches."""
    _mark("start")
    threading.Event().wait()


def _mark(text: str) -> None:
    with Path(os.environ["SHOP_MARKS"]).open("a", encoding="utf-8") as marks:
        marks.write(f"{text}\n")
