"""One queue's consumer on one channel: what it settles, and how to see that it is dead.

Everything in here belongs to the consumer thread (`consumer.py`). Which frames to send is worked
out in `ledger.py`.
"""

import enum
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from queuey_sync.backends.rabbitmq.consuming.ledger import Ledger
from queuey_sync.errors import BackendError
from queuey_sync.queues import QueueConfig

_OVERDUE = "delivery acknowledgement on channel"
"""How the broker's reason begins when a delivery was left unsettled for too long."""
OnMessage = Callable[[BlockingChannel, Basic.Deliver, BasicProperties, bytes], None]


class Settling(enum.Enum):
    """What becomes of a delivered message at the broker."""

    ACK = "ack"
    REQUEUE = "requeue"
    DISCARD = "discard"


class Named(Protocol):
    """Something that a log can name: a delivery."""

    @property
    def name(self) -> str:
        """What to call it."""
        ...


class ConsumerChannel:
    """A channel that consumes one queue. Owner: the consumer thread."""

    def __init__(self, config: QueueConfig, channel: BlockingChannel) -> None:
        self.config = config
        self.queue = config.full_name
        self.channel = channel
        self.in_hand: dict[int, Named] = {}
        """What was delivered and is not settled, by its tag; the oldest first."""
        self._consumer_tag = consumer_tag(self.queue)
        self._ledger = Ledger()
        self._cancelled = False

    @property
    def is_open(self) -> bool:
        """Whether it can still settle anything, as far as is known. From any thread."""
        return self.channel.is_open

    def consume(self, on_message: OnMessage) -> None:
        """Subscribe, with at most the queue's prefetch of messages unsettled."""
        self.channel.add_on_cancel_callback(self._on_cancel)
        self.channel.basic_qos(prefetch_count=self.config.prefetch)
        self.channel.basic_consume(self.queue, on_message, consumer_tag=self._consumer_tag)

    def ready(self) -> int:
        """How many messages wait on the queue. What left it before has arrived when this returns.

        The answer overtakes messages that the queue handed to the channel just before; the answer
        to a second request, which changes nothing, does not.
        """
        count: int = self.channel.queue_declare(self.queue, passive=True).method.message_count
        self.channel.basic_qos(prefetch_count=self.config.prefetch)
        return count

    def cancel(self) -> None:
        """Take no more; pika gives back what it had received and not yet passed on."""
        self.channel.basic_cancel(self._consumer_tag)

    def fault(self) -> BaseException | None:
        """Why this consumer gets nothing any more, if so; pika raises nothing for it."""
        if self._cancelled:
            return BackendError(f"the broker cancelled the consumer of queue `{self.queue}`")
        if self.channel.is_closed:
            # The broker's reason is in a private attribute only.
            reason = getattr(self.channel, "_closing_reason", None)
            return reason or BackendError(f"the channel of queue `{self.queue}` was closed")
        return None

    def overdue(self) -> str:
        """What the broker closed the channel for, if it was not settled within its time limit."""
        reason = str(self.fault())
        if _OVERDUE not in reason or not self.in_hand:
            return ""
        return next(iter(self.in_hand.values())).name

    def send(self, settled: Sequence[tuple[int, Settling]]) -> None:
        """Settle messages at the broker, by their delivery tags, with as few frames as possible."""
        for tag, settling in settled:
            self.in_hand.pop(tag, None)
            if settling is not Settling.ACK:
                self.channel.basic_nack(tag, requeue=settling is Settling.REQUEUE)
                self._ledger.reject([tag])
        for ack in self._ledger.ack(tag for tag, settling in settled if settling is Settling.ACK):
            self.channel.basic_ack(ack.tag, multiple=ack.multiple)

    def _on_cancel(self, _method: object) -> None:
        self._cancelled = True


def consumer_tag(queue: str) -> str:
    """A unique name for a consumer, which shows the queue and fits AMQP's 255 bytes.

    >>> consumer_tag("shop.orders").startswith("queuey.shop.orders.")
    True
    """
    name = queue.encode()[:160].decode(errors="ignore")
    return f"queuey.{name}.{uuid.uuid4().hex}"
