"""What the contract suite needs of a backend: looking inside, raw bodies, passing time.

A new backend joins the suite with one more class here and its name in `conftest.py`.
"""

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from queue import Empty
from typing import Unpack

import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

from queuey_sync.backends.base import Backend, Delivery, Inbox
from queuey_sync.backends.memory.backend import MemoryBackend
from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.backends.rabbitmq.options import OptionKeywords
from queuey_sync.backends.sqlite import store
from queuey_sync.backends.sqlite.backend import SQLiteBackend
from queuey_sync.envelope import Envelope
from queuey_sync.errors import QueueyError
from queuey_sync.queues import HOLD_SUFFIXES, Kind, QueueConfig
from queuey_sync.testing import ManualClock

MALFORMED = "malformed envelope"
STEP = timedelta(seconds=1)
"""The delay of the suite: what every backend holds exactly."""
SETTLE: dict[str, Callable[[Delivery], None]] = {
    "ack": lambda delivery: delivery.ack(),
    "retry": lambda delivery: delivery.retry(delivery.envelope.next_attempt(), STEP),
    "defer": lambda delivery: delivery.defer(delivery.envelope.deferred(10), STEP),
    "dead_letter": lambda delivery: delivery.dead_letter("bad input"),
    "release": lambda delivery: delivery.release(),
}
"""Every settling call of a job, by name."""


def envelope(queue: QueueConfig, number: int = 0, priority: int = 0) -> Envelope:
    """A fresh envelope that is told from others by its number."""
    payload = f'{{"n":{number}}}'.encode()
    return Envelope.new("contract.Job", queue.full_name, payload, priority=priority)


class Listener:
    """Keeps what a consumption tells."""

    def __init__(self) -> None:
        self.errors: list[QueueyError] = []  # appended to by the backend's threads
        self.failed: list[tuple[Delivery, Exception]] = []  # appended to by the backend's threads

    def ended(self, error: QueueyError) -> None:
        self.errors.append(error)

    def redelivers(self, queue: str) -> None: ...

    def settle_failed(self, delivery: Delivery, error: Exception) -> None:
        self.failed.append((delivery, error))


class Consumer:
    """Stands for a worker: consumes some queues into an inbox, and takes from it."""

    def __init__(
        self, adapter: "Adapter", backend: Backend, configs: tuple[QueueConfig, ...]
    ) -> None:
        self._adapter = adapter
        self._ended = False
        self.inbox = Inbox()
        self.listener = Listener()
        self.consumption = backend.consume(configs, self.inbox, self.listener)

    def take(self) -> Delivery:
        """The next delivery; time passes until there is one."""
        delivery = self._adapter.take(self.inbox)
        assert delivery is not None
        return delivery

    def take_envelopes(self, count: int) -> list[Envelope]:
        """The next envelopes; their deliveries are acked."""
        envelopes = []
        for _ in range(count):
            delivery = self.take()
            envelopes.append(delivery.envelope)
            delivery.ack()
        return envelopes

    def end(self, runners: int = 0) -> None:
        """Stop, then close, as a worker does whose runners have nothing left; once."""
        if not self._ended:
            self._ended = True
            self.consumption.stop(runners)
            self.consumption.close()


class Adapter(ABC):
    """One backend under test."""

    backend: Backend

    def __init__(self, full_name: Callable[[str], str], kind: Kind = "classic") -> None:
        self._full_name = full_name
        self.kind: Kind = kind
        self._consumers: list[Consumer] = []

    def consume(self, *configs: QueueConfig, backend: Backend | None = None) -> Consumer:
        """Consume through this backend, or another one."""
        consumer = Consumer(self, backend or self.backend, configs)
        self._consumers.append(consumer)
        return consumer

    def queue(self, name: str = "q", prefetch: int = 16) -> QueueConfig:
        """A queue of this test, declared."""
        config = QueueConfig(self._full_name(name), prefetch=prefetch, kind=self.kind)
        self.backend.declare([config])
        return config

    def ordered(self, envelopes: list[Envelope]) -> list[Envelope]:
        """The same, to be compared as far as this kind of queue promises an order.

        Quorum queues have no levels, and put what they get back in front in any order.
        """
        return (
            envelopes if self.kind == "classic" else sorted(envelopes, key=lambda one: one.job_id)
        )

    @abstractmethod
    def another_backend(self) -> Backend:
        """One that shares the queues."""

    @abstractmethod
    def publish_raw(self, queue: str, body: bytes) -> None:
        """Place a body as it is."""

    @abstractmethod
    def ready(self, queue: str) -> int:
        """How many messages wait, not handed out."""

    @abstractmethod
    def held(self, queue: str) -> int:
        """How many deferred messages are held for `STEP`."""

    @abstractmethod
    def dead(self, queue: str) -> list[tuple[bytes, str]]:
        """Bodies and reasons on the dead-letter queue, malformed ones last."""

    @abstractmethod
    def now(self) -> float:
        """Seconds on the clock that delays are measured by."""

    @abstractmethod
    def take(self, inbox: Inbox) -> Delivery | None:
        """The next thing in the inbox; time passes until there is one."""

    def close(self) -> None:
        """End and remove everything."""
        for consumer in self._consumers:
            consumer.end()
        self.backend.close()


class MemoryAdapter(Adapter):
    """The memory backend, on a clock that only `take` moves."""

    def __init__(self) -> None:
        super().__init__(full_name=str)
        self._clock = ManualClock()
        self._seconds = 0.0
        self.memory = self.backend = MemoryBackend(self._clock)

    def another_backend(self) -> Backend:
        return self.backend

    def publish_raw(self, queue: str, body: bytes) -> None:
        self.memory.publish_raw(queue, body)

    def ready(self, queue: str) -> int:
        return self.memory.pending(queue)

    def held(self, queue: str) -> int:
        return self.memory.deferred(queue)

    def dead(self, queue: str) -> list[tuple[bytes, str]]:
        dead = [(letter.encode(), reason) for letter, reason in self.memory.dead_letters(queue)]
        return [*dead, *((body, MALFORMED) for body in self.memory.buried(queue))]

    def now(self) -> float:
        return self._seconds

    def pass_time(self) -> None:
        """Move the clock on by a little."""
        self._clock.advance("50ms")
        self._seconds += 0.05

    def take(self, inbox: Inbox) -> Delivery | None:
        for _ in range(600):
            try:
                return inbox.get_nowait()
            except Empty:
                self.pass_time()
        raise AssertionError("nothing arrived within 30 s of the clock")


class RabbitMQAdapter(Adapter):
    """RabbitMQ, looked into through a connection of its own; time is real."""

    def __init__(
        self,
        url: str,
        full_name: Callable[[str], str],
        *,
        kind: Kind = "classic",
        **options: Unpack[OptionKeywords],
    ) -> None:
        super().__init__(full_name, kind)
        self._url = url
        self._options = options
        self._backends: list[Backend] = []
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()  # so that what is placed here is there before what follows
        self.backend = self.another_backend()

    def another_backend(self) -> Backend:
        backend = RabbitMQBackend(self._url, **self._options)
        self._backends.append(backend)
        return backend

    def publish_raw(self, queue: str, body: bytes) -> None:
        self._channel.basic_publish("", queue, body)

    def ready(self, queue: str) -> int:
        return self.look(queue) or 0

    def held(self, queue: str) -> int:
        return self.look(f"{queue}.deferred{HOLD_SUFFIXES[self.kind]}.1000") or 0

    def look(self, queue: str) -> int | None:
        """How many messages are ready on a queue, None if it is not there; counts as its use."""
        channel = self._connection.channel()
        try:
            count: int = channel.queue_declare(queue, passive=True).method.message_count
        except ChannelClosedByBroker:
            return None
        channel.close()
        return count

    def get(self, queue: str) -> tuple[pika.BasicProperties, bytes] | None:
        """Take one message off any queue."""
        _, properties, body = self._channel.basic_get(queue, auto_ack=True)
        return None if properties is None or body is None else (properties, body)

    def peek(self, queue: str) -> bool:
        """Take one message and give it back, if there is one."""
        method, _, _ = self._channel.basic_get(queue)
        if method is None:
            return False
        self._channel.basic_nack(method.delivery_tag or 0)
        return True

    def delete(self, queue: str) -> None:
        """Delete a queue behind the backend's back."""
        self._channel.queue_delete(queue)

    def dead(self, queue: str) -> list[tuple[bytes, str]]:
        dead = []
        while message := self.get(f"{queue}.dead"):
            properties, body = message
            dead.append((body, str((properties.headers or {})["x-death-reason"])))
        return sorted(dead, key=lambda letter: letter[1] == MALFORMED)

    def now(self) -> float:
        return time.monotonic()

    def take(self, inbox: Inbox) -> Delivery | None:
        try:
            return inbox.get(timeout=10)
        except Empty:
            raise AssertionError("nothing arrived within 10 s") from None

    def close(self) -> None:
        super().close()
        for backend in self._backends:
            backend.close()
        with suppress(AMQPError):  # a broker that was killed; what is open here is closed still
            self._connection.close()


class SQLiteAdapter(Adapter):
    """The store in one file, looked into through a connection of its own; time is real."""

    def __init__(self, path: Path) -> None:
        super().__init__(full_name=str)
        self._path = path
        self._backends: list[SQLiteBackend] = []
        self.store = self.backend = self.another_backend()
        self._onlooker = self.another_backend()

    def another_backend(self) -> SQLiteBackend:
        backend = SQLiteBackend(f"sqlite:///{self._path}")
        self._backends.append(backend)
        return backend

    def publish_raw(self, queue: str, body: bytes) -> None:
        self.store._file.write(
            lambda db: store.place(db, store.queue_to_publish(db, queue), 0, body, 0)
        )

    def ready(self, queue: str) -> int:
        return self._onlooker.depths([QueueConfig(queue)])[0].ready

    def held(self, queue: str) -> int:
        return self._onlooker.depths([QueueConfig(queue)])[0].held or 0

    def dead(self, queue: str) -> list[tuple[bytes, str]]:
        look = (
            "SELECT body, reason FROM dead JOIN queues ON number = queue WHERE name = ?"
            " ORDER BY reason = ?, id"
        )
        with closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(look, (queue, MALFORMED)).fetchall()

    def now(self) -> float:
        return time.monotonic()

    def take(self, inbox: Inbox) -> Delivery | None:
        try:
            return inbox.get(timeout=10)
        except Empty:
            raise AssertionError("nothing arrived within 10 s") from None

    def close(self) -> None:
        super().close()
        for backend in self._backends:
            backend.close()
