"""What the tests of publishing share: envelopes, a look into the broker, losing it."""

from collections.abc import Callable
from datetime import timedelta

import pika

from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.envelope import Envelope
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

SECOND = timedelta(seconds=1)


def envelope(queue: str) -> Envelope:
    """A fresh envelope for a queue."""
    return Envelope.new("test.Job", queue, b'{"n":1}')


def lose(backend: RabbitMQBackend, proxy: Proxy) -> None:
    """The broker is away, and the backend has noticed."""
    proxy.refuse()
    eventually(lambda: not backend.is_connected)


class Looker:
    """Looks into a broker through a connection of its own."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()

    def count(self, queue: str) -> int:
        """How many messages are ready."""
        return self.channel.queue_declare(queue, passive=True).method.message_count

    def message_ids(self, queue: str) -> list[str | None]:
        """The ids of all messages, which are taken off the queue."""
        ids = []
        while (got := self.channel.basic_get(queue, auto_ack=True))[1] is not None:
            ids.append(got[1].message_id)
        return ids


MakeBackend = Callable[..., RabbitMQBackend]
