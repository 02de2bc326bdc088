"""One connection that consumes, with a channel for each queue, from its dial to its loss.

Everything in here belongs to the consumer thread (`consumer.py`), which dials the next session when
it is to reconnect. What one channel does is in `channel.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPError,
    AMQPHeartbeatTimeout,
    ChannelClosed,
    ConnectionWrongStateError,
)
from pika.spec import Basic, BasicProperties

from queuey_sync.backends.rabbitmq.consuming.channel import ConsumerChannel, Settling
from queuey_sync.backends.rabbitmq.consuming.delivery import RabbitMQDelivery
from queuey_sync.backends.rabbitmq.dialling import Brokers, DialFailed, address, dial, fault_text
from queuey_sync.backends.rabbitmq.hearing import Ear
from queuey_sync.backends.rabbitmq.topology import QueueDeclaration
from queuey_sync.errors import BackendError, BrokerUnavailable
from queuey_sync.queues import QueueConfig

Arrived = Callable[[ConsumerChannel, int, bytes], None]
"""Takes a message: the channel that it came on, its delivery tag and its body."""
Settled = tuple[RabbitMQDelivery, Settling]


class Session:
    """A connection with its consumers.

    Args:
        brokers: Where to connect.
        arrived: Called for each message.

    Raises:
        BrokerUnavailable: There is no connection.
    """

    def __init__(self, brokers: Brokers, arrived: Arrived) -> None:
        self._arrived = arrived
        self.channels: list[ConsumerChannel] = []
        try:
            self.connection, self._parameters = dial(brokers)
        except DialFailed as error:
            raise BrokerUnavailable(f"cannot reach {error}") from error
        self.address = address(self._parameters)
        self._ear = Ear(self.connection)

    def declare(self, queues: Sequence[QueueDeclaration]) -> None:
        """Make queues exist; raises `BackendError` where the broker refuses."""
        channel = self.connection.channel()
        for queue in queues:
            try:
                channel.queue_declare(
                    queue.name,
                    passive=queue.passive,
                    durable=queue.durable,
                    arguments=queue.arguments,
                )
            except ChannelClosed as fault:
                text = self._text(f"cannot declare queue `{queue.name}` of", fault)
                raise BackendError(f"{text}; {queue.wanted}") from fault
        channel.close()

    def consume(self, config: QueueConfig) -> None:
        """Take messages of a queue from now on; raises `BackendError` where the broker refuses."""
        channel = ConsumerChannel(config, self.connection.channel())

        def on_message(
            _channel: BlockingChannel, method: Basic.Deliver, _: BasicProperties, body: bytes
        ) -> None:
            # A delivery has a tag; only pika's types allow none.
            self._arrived(channel, method.delivery_tag or 0, body)

        try:
            channel.consume(on_message)
        except ChannelClosed as fault:
            text = self._text(f"cannot consume queue `{config.full_name}` of", fault)
            raise BackendError(text) from fault
        self.channels.append(channel)

    def loss(self) -> BaseException | None:
        """Why the connection is gone, if it is; pika raises nothing for it the next time."""
        if self.connection.is_open:
            return self._silence()
        faults = (channel.fault() for channel in self.channels)
        return next(filter(None, faults), None) or ConnectionWrongStateError("connection lost")

    def _silence(self) -> BaseException | None:
        """The fault, if the broker has not been heard for two heartbeats."""
        seconds = self._ear.silent_for()
        if seconds is None:
            return None
        self._ear.cut()
        with suppress(AMQPError):
            self.connection.process_data_events(time_limit=0)  # pika cleans up after the cut
        return AMQPHeartbeatTimeout(f"nothing was heard from it for {seconds:.0f} s")

    def survey(self) -> dict[str, int]:
        """How many messages wait on each queue; what left them before has arrived on return."""
        ready = {channel.queue: channel.ready() for channel in self.channels}
        self.connection.process_data_events(time_limit=0)
        return ready

    def give_back(self, deliveries: Iterable[RabbitMQDelivery]) -> None:
        """Take no more, and put these back; those of a dead channel are on their queue already."""
        alive = [channel for channel in self.channels if channel.is_open]
        for channel in alive:
            channel.cancel()
        given_back = ((delivery, Settling.REQUEUE) for delivery in deliveries)
        for channel, batch in by_channel(given_back):
            if channel in alive:
                channel.send([(delivery.tag, settling) for delivery, settling in batch])

    def hang_up(self) -> None:
        """Close the connection, if it is not lost."""
        with suppress(AMQPError):
            if self.connection.is_open:
                self.connection.close()

    def _text(self, what: str, fault: Exception) -> str:
        return f"{what} {self.address}: {fault_text(fault, self._parameters)}"


def by_channel(settled: Iterable[Settled]) -> Iterable[tuple[ConsumerChannel, list[Settled]]]:
    """The settlements of each channel, in order."""
    batches: dict[ConsumerChannel, list[Settled]] = {}
    for delivery, settling in settled:
        batches.setdefault(delivery.channel, []).append((delivery, settling))
    return batches.items()
