"""`RabbitMQBackend`: jobs wait on RabbitMQ.

It turns envelopes into messages for the publisher, and remembers which queues were declared through
it. `topology.py` says what is on the broker, `publishing/` how it gets there, `consuming/` how jobs
come back. It knows no handlers, policies or outcomes.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Unpack
from weakref import WeakSet

from queuey_sync.backends.base import Backend, Consumption, DeadQueue, Depth, Inbox, Listener
from queuey_sync.backends.rabbitmq import properties
from queuey_sync.backends.rabbitmq.consuming.consumer import Consumer
from queuey_sync.backends.rabbitmq.dead import BrokerDead
from queuey_sync.backends.rabbitmq.dialling import brokers_of
from queuey_sync.backends.rabbitmq.looking import look
from queuey_sync.backends.rabbitmq.management import Management, held
from queuey_sync.backends.rabbitmq.options import OptionKeywords, Options
from queuey_sync.backends.rabbitmq.publishing.calls import Entry
from queuey_sync.backends.rabbitmq.publishing.publisher import Publisher
from queuey_sync.backends.rabbitmq.topology import (
    QueueDeclaration,
    Topology,
    check_name,
    hold_ttl_ms,
)
from queuey_sync.envelope import Envelope
from queuey_sync.errors import BackendError, QueueyError, ShutDown, UnknownQueue
from queuey_sync.queues import LONGEST_TTL_MS, Kind, QueueConfig
from queuey_sync.shutdown import Backoff

_CONSUMER_TIMEOUT = timedelta(minutes=30)
"""The default of every RabbitMQ that has one, from 3.8.17 on."""


class RabbitMQBackend(Backend):
    """Jobs wait on a RabbitMQ broker. Nothing is dialled before the first use.

    Publishing has one connection, made on first use and made anew when it was lost; each
    consumption has another. After a fork the child makes its own.

    Args:
        url: ``amqp://`` or ``amqps://``, with the query parameters that pika knows and those of
            TLS; or several of them, the nodes of one cluster, which are tried in turn: a sequence,
            or a text with commas or spaces between them.
        **options: The fields of `Options`.

    Raises:
        ConfigurationError: The URL or an option cannot be used.

    >>> backend = RabbitMQBackend("amqp://localhost", deferred_suffix="-hold")
    >>> backend.hold_queue("shop.mail", 250), backend.is_connected
    ('shop.mail-hold.250', False)
    """

    def __init__(self, url: str | Sequence[str], **options: Unpack[OptionKeywords]) -> None:
        self._options = Options(**options)
        self._topology = Topology(self._options)
        self._brokers = brokers_of(
            url, connection_name=self._options.connection_name, tls=self._options.tls
        )
        self._publisher = Publisher(self._brokers, self._options.publish_limit)
        self._configs: dict[str, QueueConfig] = {}
        """By name, once declared. Guarded by the interpreter lock: one operation each."""
        self._consumers: WeakSet[Consumer] = WeakSet()
        """Those that may still run. Guarded by the interpreter lock: one operation each."""

    @property
    def options(self) -> Options:
        """The options that it was made with."""
        return self._options

    @property
    def declare_dead_letter_queues(self) -> bool:
        """Whether there are dead-letter queues to publish to."""
        return self._options.declare_dead_letter_queues

    @property
    def is_connected(self) -> bool:
        """Whether the connection for publishing is up; asking never dials."""
        return self._publisher.is_connected

    @property
    def longest_delay(self) -> timedelta:
        """The longest delay that every hold queue can keep."""
        steps_ms = (self._options.retry_step_ms, self._options.deferred_step_ms)
        return timedelta(milliseconds=min(LONGEST_TTL_MS // step * step for step in steps_ms))

    @property
    def settle_limit(self) -> timedelta:
        """A broker's ``consumer_timeout``, if it was left alone: no client can ask for it."""
        return _CONSUMER_TIMEOUT

    @property
    def delay_step(self) -> timedelta:
        """The coarser one of the two granularities."""
        return timedelta(
            milliseconds=max(self._options.retry_step_ms, self._options.deferred_step_ms)
        )

    def dead_queue(self, queue: str) -> str:
        """The name of the dead-letter queue of `queue`."""
        return self._topology.dead_queue(queue)

    def hold_queue(self, queue: str, ttl_ms: int, kind: Kind = "classic") -> str:
        """The name of the queue where jobs of `queue` wait for `ttl_ms`."""
        return self._topology.hold_queue(queue, ttl_ms, kind)

    def declare(self, configs: Sequence[QueueConfig]) -> None:
        """Declare these queues and their dead-letter queues, in order."""
        self._refuse_if_closed()
        for config in configs:
            self._topology.check(config)
        if not configs:
            return
        queues = [self._topology.declarations(config) for config in configs]
        landed, error = self._publisher.declare([queue for group in queues for queue in group])
        for config, group in zip(configs, queues, strict=True):
            landed -= len(group)
            if landed < 0:
                break
            self._configs[config.full_name] = config
        if error is not None:
            raise error

    def publish(self, envelope: Envelope, delay: timedelta | None = None) -> None:
        """Place an envelope on its queue or, for a delay, on a hold queue of it."""
        if delay is None:
            self._publish(_entry(envelope))
        else:
            self._hold(envelope, delay, self._options.retry_step_ms)

    def defer(self, envelope: Envelope, delay: timedelta) -> None:
        """Hold an envelope for `delay`."""
        self._hold(envelope, delay, self._options.deferred_step_ms)

    def publish_many(self, envelopes: Sequence[Envelope]) -> dict[int, QueueyError]:
        """Publish all together; see `Backend.publish_many`."""
        self._refuse_if_closed()
        failures: dict[int, QueueyError] = {}
        entries: dict[int, Entry] = {}
        for index, envelope in enumerate(envelopes):
            try:
                entries[index] = _entry(envelope)
            except BackendError as error:
                failures[index] = error
        indexes = list(entries)
        for position, failure in self._publisher.publish(list(entries.values())).items():
            failures[indexes[position]] = failure
        return dict(sorted(failures.items()))

    def publish_dead(self, queue: str, body: bytes, envelope: Envelope, reason: str) -> None:
        """Place a delivered body on the dead-letter queue of `queue`; errors as for `publish`."""
        dead_queue = _checked(self.dead_queue(queue))
        self._publish(Entry(dead_queue, body, properties.of_dead_letter(envelope, queue, reason)))

    def publish_malformed(self, queue: str, body: bytes) -> None:
        """Place a body that is no envelope on the dead-letter queue of `queue`, verbatim."""
        dead_queue = _checked(self.dead_queue(queue))
        self._publish(Entry(dead_queue, body, properties.of_malformed(queue)))

    def consume(
        self,
        configs: Sequence[QueueConfig],
        inbox: Inbox,
        listener: Listener,
        reconnect: Backoff | None = None,
    ) -> Consumption:
        """Start a consumer thread with a connection of its own."""
        consumer = Consumer(
            self._brokers, configs, inbox, listener, self, self._topology, reconnect
        )
        self._consumers.add(consumer)
        if self.is_closed():
            consumer.refuse()
        else:
            consumer.start()
        return consumer

    def depths(self, configs: Sequence[QueueConfig]) -> list[Depth]:
        """What each of these queues holds; see `Backend.depths`. What is held is unknown here."""
        self._refuse_if_closed()
        names = [config.full_name for config in configs]
        with_dead = self._options.declare_dead_letter_queues
        return look(
            self._brokers,
            [(name, self.dead_queue(name) if with_dead else None) for name in names],
        )

    def held(self, configs: Sequence[QueueConfig], management_url: str) -> list[int | None]:
        """How many retries, delays and deferrals of each of these queues wait for their time.

        Args:
            configs: The queues.
            management_url: Where the broker's management API is: ``http://user:password@host:port``
                or ``https://…``. Only that can tell, and its figures may be some seconds old.

        Returns:
            The counts, None where the broker itself does not know.

        Raises:
            ConfigurationError: The URL cannot be read.
            BackendError: The API refused, or is not that of this broker.
            BrokerUnavailable: The API cannot be reached.
            ShutDown: This backend is closed.
        """
        self._refuse_if_closed()
        messages = Management(management_url).messages(self._brokers[0])
        return held(messages, [config.full_name for config in configs], self._topology)

    def open_dead(self, config: QueueConfig) -> DeadQueue:
        """Look into the dead-letter queue of a queue, over a connection of its own."""
        self._refuse_if_closed()
        if not self._options.declare_dead_letter_queues:
            raise BackendError(f"`{config.full_name}` has no dead letters: they are switched off")
        return BrokerDead(self._brokers, self.dead_queue(config.full_name), self.publish_many)

    def close(self) -> None:
        """Let publishes under way get their confirm, then close; see `Backend.close`."""
        self._publisher.close()
        for consumer in list(self._consumers):
            consumer.backend_closed()

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._publisher.is_closed

    def _publish(self, entry: Entry) -> None:
        for error in self._publisher.publish([entry]).values():
            raise error

    def _hold(self, envelope: Envelope, delay: timedelta, step_ms: int) -> None:
        self._refuse_if_closed()
        config = self._configs.get(envelope.queue)
        if config is None:
            raise UnknownQueue(envelope.queue)
        hold = self._topology.hold(config, hold_ttl_ms(delay, step_ms))
        self._publish(_entry(envelope, hold))

    def _refuse_if_closed(self) -> None:
        if self.is_closed():
            raise ShutDown("the rabbitmq backend is closed")


def _entry(envelope: Envelope, hold: QueueDeclaration | None = None) -> Entry:
    queue = hold.name if hold is not None else _checked(envelope.queue)
    return Entry(queue, envelope.encode(), properties.of_envelope(envelope), hold)


def _checked(name: str) -> str:
    check_name(name)
    return name
