"""The queue set of the acceptance cases and its jobs, made for any prefix, in any process.

A test on a broker needs queue names of its own, and a child process can be sent no class but one
that it can import. So each shop is an attribute of this module, made when it is asked for:
``jobs.<prefix>.Charge``. Children import this, so it imports nothing but the library.
"""

from functools import cache
from types import SimpleNamespace

from queuey_sync import Job, QueueSet, RetryPolicy, queue


@cache
def shop_jobs(prefix: str) -> SimpleNamespace:
    """The set and its jobs, with the broker names under `prefix`."""

    class Shop(QueueSet, prefix=prefix):
        ORDERS = queue(prefetch=4, retry=RetryPolicy.fixed(3, "1s"))
        MAIL = queue(prefetch=2)
        AUDIT = queue(prefetch=1, max_priority=0)

    class Charge(Job[Shop], queue=Shop.ORDERS, name="shop.Charge"):
        customer: str

    class Stray(Job[Shop], queue=Shop.ORDERS, name="shop.Stray"):
        n: int

    class Notify(Job[Shop], queue=Shop.MAIL, name="shop.Notify"):
        seq: int

    class Chase(Job[Shop], queue=Shop.MAIL, name="shop.Chase", retry=RetryPolicy.fixed(2, "5s")):
        ref: int

    class Hurry(Job[Shop], queue=Shop.MAIL, name="shop.Hurry", timeout="1s", soft_timeout="500ms"):
        seq: int

    class Trace(Job[Shop], queue=Shop.AUDIT, name="shop.Trace"):
        n: int

    classes = {"Queues": Shop} | {
        job.__name__: job for job in (Charge, Stray, Notify, Chase, Hurry, Trace)
    }
    for name, one in classes.items():
        one.__qualname__ = f"{prefix}.{name}"
    return SimpleNamespace(**classes)


def __getattr__(prefix: str) -> SimpleNamespace:
    if prefix == "shop" or prefix.startswith("test-"):
        return shop_jobs(prefix)
    raise AttributeError(prefix)
