"""One message in the hands of a worker: each settling call is one step under the store's lock.

A delivery is unsettled as long as its consumer has its tag. One that is thrown away unsettled is
dropped: its slot is free again, and its message gone.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from queuey_sync.backends.base import Delivery
from queuey_sync.backends.memory.store import Consumer, Queue, Store
from queuey_sync.envelope import Envelope
from queuey_sync.errors import SettleError, ShutDown

log = logging.getLogger(__name__)


class MemoryDelivery(Delivery):
    """One message.

    Args:
        store: Where copies are placed.
        consumer: Whose message it is.
        tag: Which of its messages.
        body: What the message says.
    """

    def __init__(self, store: Store, consumer: Consumer, tag: int, body: bytes) -> None:
        self.queue = consumer.queue.config.full_name
        self.body = body
        self._store = store
        self._consumer = consumer
        self._tag = tag
        self._envelope: Envelope | None = None  # decoding twice is harmless

    @property
    def envelope(self) -> Envelope:
        """The decoded body."""
        if self._envelope is None:
            self._envelope = Envelope.decode(self.body)
        return self._envelope

    def ack(self) -> None:
        """The job is done with; also on a closed backend."""
        with self._settling("ack", even_closed=True) as queue:
            queue.settled.append((self.envelope, "succeeded"))

    def retry(self, next_attempt: Envelope, delay: timedelta) -> None:
        """Place the next attempt, then ack."""
        envelope, body = self.envelope, next_attempt.encode()
        with self._settling("retry") as queue:
            self._store.place(next_attempt, body, delay, deferred=False)
            queue.settled.append((envelope, "retried"))

    def defer(self, deferred: Envelope, delay: timedelta) -> None:
        """Hold the deferred job, then ack."""
        envelope, body = self.envelope, deferred.encode()
        with self._settling("defer") as queue:
            self._store.place(deferred, body, delay, deferred=True)
            queue.settled.append((envelope, "deferred"))

    def dead_letter(self, reason: str) -> None:
        """Keep the job with its reason."""
        with self._settling("dead_letter"):
            self._store.queue(self.envelope.queue).dead.append((self.envelope, reason))

    def release(self) -> None:
        """Put the message where it was."""
        with self._settling("release"):
            self.give_back()

    def bury(self) -> None:
        """Keep the malformed body."""
        try:
            with self._settling("bury") as queue:
                queue.buried.append(self.body)
        except (SettleError, ShutDown) as error:
            log.warning("a malformed body from queue `%s` was not buried: %s", self.queue, error)
        else:
            log.warning("buried a malformed body from queue `%s`", self.queue)

    def give_back(self) -> None:
        """Put the message where it was; needs the store's lock."""
        self._consumer.give_back(self._tag)

    @contextmanager
    def _settling(self, call: str, *, even_closed: bool = False) -> Iterator[Queue]:
        unsettled = self._consumer.unsettled
        with self._store.locked():
            if self._tag not in unsettled:
                text = f"{call} on a delivery of queue `{self.queue}` that was settled already"
                raise SettleError(f"{text}, or given back as its consumption closed")
            if self._store.closed and not even_closed:
                raise ShutDown
            yield self._consumer.queue
            unsettled.pop(self._tag, None)
            self._store.feed(self._consumer.queue)

    def __del__(self) -> None:
        if self._tag in self._consumer.unsettled:
            self._store.abandon(self._consumer, self._tag)
