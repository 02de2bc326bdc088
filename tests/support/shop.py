"""What the tests of declarations share: two queue sets, jobs on them, types of fields."""

import dataclasses
import types
from enum import Enum
from typing import Any

from queuey_sync.jobs import Job
from queuey_sync.queues import QueueSet, queue
from queuey_sync.retry import RetryPolicy


class Shop(QueueSet, prefix="shop"):
    """The set of the jobs below."""

    ORDERS = queue(retry=RetryPolicy.fixed(3, "1s"))
    MAIL = queue()


class Other(QueueSet):
    """A set that they do not belong to."""

    ELSEWHERE = queue()


class Charge(Job[Shop], queue=Shop.ORDERS, name="shop.Charge"):
    """A job with its queue's policy."""

    customer: str


class Chase(Job[Shop], queue=Shop.MAIL, name="shop.Chase", retry=RetryPolicy.fixed(2, "5s")):
    """A job with a policy of its own."""

    ref: int


class Refund(Charge, queue=Shop.MAIL, name="shop.Refund"):
    """A job of a job."""


class Notify(Job[Shop], queue=Shop.MAIL, name="mail.send", retry=RetryPolicy.fixed(2, "5s")):
    """A job with several fields and defaults."""

    to: str
    copies: int = 1
    note: str | None = None
    tags: list[str] = dataclasses.field(default_factory=list)


class Colour(Enum):
    """A field type."""

    RED = "red"


@dataclasses.dataclass(frozen=True)
class Address:
    """A field type that holds itself."""

    street: str
    before: "Address | None" = None


def declare(annotation: Any, **options: Any) -> Any:
    """A job class with one field of this type."""

    def fill(namespace: dict[str, Any]) -> None:
        namespace["__annotations__"] = {"field": annotation}
        namespace["__qualname__"] = "declare.<locals>.Declared"

    keywords = {"queue": Shop.ORDERS, "name": "declared"} | options
    return types.new_class("Declared", (Job[Shop],), keywords, fill)
