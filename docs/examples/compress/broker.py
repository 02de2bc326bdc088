"""The demo's RabbitMQ: a private one that keeps its data, and a look into the queues."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pika
from pika.exceptions import ChannelClosedByBroker

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "broker"


class BrokerFailed(Exception):
    """There is no private broker; `scripts/broker` has said why."""


@contextmanager
def private_broker(folder: Path) -> Iterator[str]:
    """Start a broker on a free port, give its URL, and stop it; its queues stay in the folder."""
    command = [sys.executable, str(SCRIPT)]
    start = [*command, "start", "--dir", str(folder)]
    stop = [*command, "stop", "--dir", str(folder)]
    if (folder / "node.json").exists():
        # One that a killed run left behind goes, and with it the connection of that run's worker.
        subprocess.run(stop, check=False)
    started = subprocess.run(start, stdout=subprocess.PIPE, text=True, check=False)
    if started.returncode:
        raise BrokerFailed("no private RabbitMQ could be started")
    try:
        yield started.stdout.strip()
    finally:
        # A session of its own: an impatient Ctrl-C must not leave the broker behind.
        subprocess.run(stop, check=False, start_new_session=True)


class Look:
    """Counts what is on a queue, on its hold queue and on its dead-letter queue."""

    def __init__(self, url: str, queue: str) -> None:
        self._queue = queue
        self._connection = pika.BlockingConnection(pika.URLParameters(url))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    def waiting(self) -> int:
        """The jobs that are ready or held; one that a worker has taken does not count."""
        return self._count(self._queue) + self._count(f"{self._queue}.deferred.1000")

    def dead(self) -> int:
        return self._count(f"{self._queue}.dead")

    def reasons(self) -> list[str]:
        """Why each dead letter died; they stay where they are."""
        channel = self._connection.channel()
        reasons = []
        while True:
            method, properties, _ = channel.basic_get(f"{self._queue}.dead")
            if method is None or properties is None:
                break
            reasons.append(str((properties.headers or {}).get("x-death-reason")))
        channel.close()  # puts back what was got and not acknowledged
        return reasons

    def delete(self) -> None:
        channel = self._connection.channel()
        for suffix in ("", ".dead", ".deferred.1000"):
            channel.queue_delete(self._queue + suffix)
        channel.close()

    def _count(self, queue: str) -> int:
        channel = self._connection.channel()
        try:
            count: int = channel.queue_declare(queue, passive=True).method.message_count
        except ChannelClosedByBroker:
            return 0  # there is no such queue
        channel.close()
        return count
