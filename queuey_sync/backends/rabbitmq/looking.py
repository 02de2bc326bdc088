"""Looking at queues without taking anything: how much waits, and who consumes.

Each look has a short connection of its own, since it is rare and must not disturb publishing. The
broker cannot say what its hold queues hold: nobody knows all of their names.
"""

from collections.abc import Sequence

from pika.adapters.blocking_connection import BlockingChannel
from pika.connection import Parameters
from pika.exceptions import AMQPError, ChannelClosed

from queuey_sync.backends.base import Depth
from queuey_sync.backends.rabbitmq.dialling import Brokers, DialFailed, address, dial, fault_text
from queuey_sync.errors import BackendError, BrokerUnavailable

_NOT_FOUND = 404
"""The reply code of the broker."""


def look(brokers: Brokers, queues: Sequence[tuple[str, str | None]]) -> list[Depth]:
    """What each of these queues holds, given with the name of its dead-letter queue, if any.

    Raises:
        BackendError: A queue does not exist, or the broker refused.
        BrokerUnavailable: It cannot be reached.
    """
    try:
        connection, parameters = dial(brokers)
    except DialFailed as error:
        raise BrokerUnavailable(f"cannot look at {error}") from error
    try:
        with connection:
            channel = connection.channel()
            return [_depth(channel, parameters, *names) for names in queues]
    except (AMQPError, OSError) as fault:
        text = f"cannot look at {address(parameters)}: {fault_text(fault, parameters)}"
        raise BrokerUnavailable(text) from fault


def _depth(
    channel: BlockingChannel, parameters: Parameters, queue: str, dead_queue: str | None
) -> Depth:
    ready, consumers = _declared(channel, parameters, queue)
    dead = 0 if dead_queue is None else _declared(channel, parameters, dead_queue)[0]
    return Depth(ready=ready, held=None, dead=dead, consumers=consumers)


def _declared(channel: BlockingChannel, parameters: Parameters, queue: str) -> tuple[int, int]:
    try:
        method = channel.queue_declare(queue, passive=True).method
    except ChannelClosed as fault:
        if fault.reply_code == _NOT_FOUND:
            raise BackendError(
                f"queue `{queue}` does not exist: declare it, as `queuey-sync declare` does"
            ) from fault
        text = f"cannot look at queue `{queue}`: {fault_text(fault, parameters)}"
        raise BackendError(text) from fault
    return method.message_count, method.consumer_count
