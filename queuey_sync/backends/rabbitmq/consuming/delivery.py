"""One message in the hands of a worker: it places copies, then lets go of the original.

A delivery belongs to one channel of one connection, and can never be settled on another. Copies go
out on the publisher's connection; what becomes of the original goes to the consumer thread
(`consumer.py`).
"""

import logging
from datetime import timedelta
from typing import Protocol

from queuey_sync.backends.base import Delivery
from queuey_sync.backends.rabbitmq.consuming.channel import ConsumerChannel, Settling
from queuey_sync.envelope import Envelope
from queuey_sync.errors import MalformedEnvelope, QueueyError, SettleError
from queuey_sync.observe.escaping import one_line

log = logging.getLogger(__name__)


class Copies(Protocol):
    """Places copies of delivered jobs: the publishing half of the backend."""

    @property
    def declare_dead_letter_queues(self) -> bool:
        """Whether dead-letter queues are in use at all."""
        ...

    def publish(self, envelope: Envelope, delay: timedelta | None = None) -> None:
        """Place an envelope on its queue, now or after a delay."""

    def defer(self, envelope: Envelope, delay: timedelta) -> None:
        """Hold an envelope."""

    def publish_dead(self, queue: str, body: bytes, envelope: Envelope, reason: str) -> None:
        """Place the body of a job on the dead-letter queue of `queue`."""

    def publish_malformed(self, queue: str, body: bytes) -> None:
        """Place a body that is no envelope on the dead-letter queue of `queue`."""


class Settlements(Protocol):
    """Takes settlements to the broker: the consumer thread."""

    def check_open(self, delivery: "RabbitMQDelivery") -> None:
        """Raise `SettleError` when the delivery can no longer be settled."""

    def settle(self, delivery: "RabbitMQDelivery", settling: Settling) -> None:
        """Take a settlement, to be sent soon; raises as `check_open` does."""


class RabbitMQDelivery(Delivery):
    """One message. Owner: whoever took it from the inbox; nothing in it is shared."""

    __slots__ = (
        "_copies",
        "_envelope",
        "_settled",
        "_settlements",
        "body",
        "channel",
        "queue",
        "tag",
    )

    def __init__(  # noqa: PLR0917 - made for each message, and keywords cost there
        self,
        queue: str,
        body: bytes,
        tag: int,
        channel: ConsumerChannel,
        settlements: Settlements,
        copies: Copies,
    ) -> None:
        self.queue = queue
        self.body = body
        self.tag = tag
        self.channel = channel
        self._settlements = settlements
        self._copies = copies
        self._envelope: Envelope | None = None
        self._settled = False

    @property
    def envelope(self) -> Envelope:
        """The decoded body, decoded once."""
        if self._envelope is None:
            self._envelope = Envelope.decode(self.body)
        return self._envelope

    @property
    def is_malformed(self) -> bool:
        """Whether the body is no envelope."""
        try:
            self.envelope  # noqa: B018 - decodes it
        except MalformedEnvelope:
            return True
        return False

    @property
    def name(self) -> str:
        """What to call it in a log."""
        if self.is_malformed:
            return f"a malformed message on {self.queue}"
        return f"job {self.envelope.job_id} on {self.queue}"

    def ack(self) -> None:
        """The job is done with."""
        self._settle(Settling.ACK)

    def release(self) -> None:
        """Give the job back to its queue."""
        self._settle(Settling.REQUEUE)

    def retry(self, next_attempt: Envelope, delay: timedelta) -> None:
        """Place the next attempt, then ack."""
        self._check_open()
        self._copies.publish(next_attempt, delay)
        self._settle(Settling.ACK)

    def defer(self, deferred: Envelope, delay: timedelta) -> None:
        """Hold the deferred job, then ack."""
        self._check_open()
        self._copies.defer(deferred, delay)
        self._settle(Settling.ACK)

    def dead_letter(self, reason: str) -> None:
        """Place the body on the dead-letter queue, then ack; without such queues, reject it."""
        self._check_open()
        envelope = self.envelope
        if not self._copies.declare_dead_letter_queues:
            text = "%s is rejected, for dead-letter queues are off: %s"
            log.warning(text, self.name, one_line(reason))
            self._settle(Settling.DISCARD)
            return
        self._copies.publish_dead(envelope.queue, self.body, envelope, reason)
        self._settle(Settling.ACK)

    def bury(self) -> None:
        """Place a malformed body on the dead-letter queue, then ack; if that fails, reject it."""
        log.warning(
            "a message of %d bytes on %s is no envelope; it goes to the dead-letter queue verbatim",
            len(self.body),
            self.queue,
        )
        try:
            self._check_open()
            self._settle(Settling.ACK if self._keep_malformed() else Settling.DISCARD)
        except SettleError as error:
            log.error("%s could not be settled: %s", self.name, one_line(error))

    def _keep_malformed(self) -> bool:
        if not self._copies.declare_dead_letter_queues:
            return False
        try:
            self._copies.publish_malformed(self.queue, self.body)
        except QueueyError as error:
            log.error("%s could not be kept: %s", self.name, one_line(error))
            return False
        return True

    def _check_open(self) -> None:
        if self._settled:
            raise SettleError(f"{self.name} is settled already")
        self._settlements.check_open(self)

    def _settle(self, settling: Settling) -> None:
        if self._settled:
            raise SettleError(f"{self.name} is settled already")
        self._settlements.settle(self, settling)
        self._settled = True
