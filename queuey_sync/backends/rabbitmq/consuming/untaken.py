"""The worker's inbox as the consumer thread sees it: what it put there and nobody has taken yet."""

from collections.abc import Sequence
from contextlib import suppress
from queue import Empty

from queuey_sync.backends.base import Inbox
from queuey_sync.backends.rabbitmq.consuming.channel import ConsumerChannel
from queuey_sync.backends.rabbitmq.consuming.delivery import RabbitMQDelivery


class Untaken:
    """Deliveries on their way to the runners. Any thread may take; `delivered` is the consumer's.

    Args:
        inbox: What the runners take from.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.delivered = 0
        """How many were put there, but for those that were dropped again. Owner: the consumer
        thread."""

    def put(self, delivery: RabbitMQDelivery) -> None:
        """Hand a delivery to whichever runner is free."""
        self.delivered += 1
        self._inbox.put(delivery)

    def take(self) -> list[RabbitMQDelivery]:
        """Everything that nobody has taken, in order."""
        taken = []
        with suppress(Empty):
            while True:
                delivery = self._inbox.get_nowait()
                if isinstance(delivery, RabbitMQDelivery):
                    taken.append(delivery)
        return taken

    def drop(self, channels: Sequence[ConsumerChannel]) -> None:
        """Forget what came on these channels, which are dead: it is back on its queue."""
        for delivery in self.take():
            if delivery.channel in channels:
                self.delivered -= 1
            else:
                self._inbox.put(delivery)

    def wake(self, runners: int) -> None:
        """End so many runners."""
        for _ in range(runners):
            self._inbox.put(None)
