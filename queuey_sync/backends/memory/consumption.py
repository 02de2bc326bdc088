"""A running consumption: it has a consumer on each of its queues, and one inbox for all of them.

Everything takes effect at once, in the thread that calls. It moves no messages itself: `store.py`
does.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty

from queuey_sync.backends.base import Inbox, Listener, Pulse, Survey
from queuey_sync.backends.memory.delivery import MemoryDelivery
from queuey_sync.backends.memory.store import Consumer, Message, Store
from queuey_sync.errors import ConsumerStopped
from queuey_sync.queues import QueueConfig


class MemoryConsumption:
    """Pushes from some queues into an inbox (`queuey_sync.backends.base.Consumption`).

    Args:
        store: The queues.
        configs: What to consume, and how many deliveries may be unsettled at a time.
        inbox: Where deliveries go.
        listener: Hears of the end.
    """

    def __init__(
        self, store: Store, configs: Sequence[QueueConfig], inbox: Inbox, listener: Listener
    ) -> None:
        self._store = store
        self._configs = configs
        self._inbox = inbox
        self._listener = listener
        self._consumers: list[Consumer] = []  # guarded by the store's lock, as is the next
        self.running = False

    # Called by the worker.

    def pulse(self) -> Pulse:
        """It has no thread that could stand still."""
        return Pulse(time.monotonic(), consuming=self.running)

    def survey(self, answer: Callable[[Survey], None]) -> None:
        """Look at all queues once, and answer before returning."""
        with self._store.locked():
            if not self.running:
                return
            survey = Survey(
                ready={
                    consumer.queue.config.full_name: len(consumer.queue.pending)
                    for consumer in self._consumers
                },
                delivered=sum(consumer.delivered for consumer in self._consumers),
            )
        answer(survey)

    def stop(self, runners: int) -> None:
        """Give back what nobody has taken, then wake the takers."""
        with self._store.locked():
            if self.running:
                self.end()
        for _ in range(runners):
            self._inbox.put(None)

    def close(self) -> None:
        """Give back what is still unsettled."""
        with self._store.locked():
            for consumer in self._consumers:
                for tag in list(consumer.unsettled):
                    consumer.give_back(tag)
                self._store.feed(consumer.queue)

    # Called by the backend.

    def begin(self) -> None:
        """Begin to push; needs the store's lock."""
        self.running = True
        for config in self._configs:
            queue = self._store.queue(config.full_name)
            consumer = Consumer(queue, config.prefetch, self._push)
            self._consumers.append(consumer)
            queue.consumers.append(consumer)
            self._store.feed(queue)

    def end(self) -> None:
        """Push no more, and put back what nobody has taken; needs the store's lock."""
        self.running = False
        for consumer in self._consumers:
            consumer.queue.consumers.remove(consumer)
        with suppress(Empty):
            while True:
                delivery = self._inbox.get_nowait()
                if isinstance(delivery, MemoryDelivery):
                    delivery.give_back()
        for consumer in self._consumers:
            self._store.feed(consumer.queue)

    def tell_end(self) -> None:
        """Tell the listener that nothing more will come."""
        self._listener.ended(ConsumerStopped(self._configs[0].full_name))

    def _push(self, consumer: Consumer, tag: int, message: Message) -> None:
        self._inbox.put(MemoryDelivery(self._store, consumer, tag, message.body))
