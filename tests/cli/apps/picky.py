"""Stands before a broker that takes every second job only."""

from collections.abc import Iterable
from typing import Any, NoReturn
from uuid import uuid4

from shop import Queues  # type: ignore[import-not-found]

from queuey_sync import Job, Queuey
from queuey_sync.errors import PublishError, PublishRefused


class Picky(Queuey[Any]):
    """Reports the jobs at odd places as refused."""

    def enqueue_many(self, jobs: Iterable[Job[Any]]) -> NoReturn:
        """Fail in part."""
        ids = [uuid4() for _ in jobs]
        raise PublishError("no", {at: PublishRefused("full") for at in range(1, len(ids), 2)}, ids)


app = Picky(Queues, url="amqp://127.0.0.1:1/")
