"""The queues of a memory backend, and how messages move between them and those who consume.

All of it is guarded by one lock, the store's. It knows neither worker nor envelope encoding: a
message is bytes with a level. Read next: `consumption.py`, `delivery.py`.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from heapq import heappop, heappush
from typing import Literal, NamedTuple

from queuey_sync.backends.memory.timer import Clock
from queuey_sync.envelope import Envelope
from queuey_sync.errors import ShutDown
from queuey_sync.queues import QueueConfig

AT_ONCE = timedelta(0)

Kind = Literal["succeeded", "retried", "deferred"]
"""How an acked delivery ended."""


class Message(NamedTuple):
    """Sorts as it is served: higher levels first, older ones first within a level."""

    rank: int
    number: int
    body: bytes


@dataclass(eq=False)
class Queue:
    """Guarded by the store's lock."""

    config: QueueConfig
    pending: list[Message] = field(default_factory=list)
    """A heap."""
    held: int = 0
    """How many messages wait for their time."""
    deferred: int = 0
    """How many of the held ones are deferrals."""
    consumers: "list[Consumer]" = field(default_factory=list)
    settled: list[tuple[Envelope, Kind]] = field(default_factory=list)
    dead: list[tuple[Envelope, str]] = field(default_factory=list)
    buried: list[bytes] = field(default_factory=list)


@dataclass(eq=False)
class Consumer:
    """One queue of a consumption; guarded by the store's lock."""

    queue: Queue
    prefetch: int
    push: "Callable[[Consumer, int, Message], None]"
    """Makes a delivery of a message, which is told from all others of this consumer by its tag."""
    delivered: int = 0
    """How many messages were pushed, which is also the tag of the last one."""
    unsettled: dict[int, Message] = field(default_factory=dict)
    """What was pushed and not settled, by tag."""

    def has_room(self) -> bool:
        """Whether another message may be pushed."""
        return self.prefetch == 0 or len(self.unsettled) < self.prefetch

    def give_back(self, tag: int) -> None:
        """Put an unsettled message where it was."""
        heappush(self.queue.pending, self.unsettled.pop(tag))


class Store:
    """The queues, and how messages move; methods need the lock unless they say they take it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.queues: dict[str, Queue] = {}  # guarded by _lock
        self.closed = False  # written under _lock
        # The garbage collector throws deliveries away at any point of any thread, also of one that
        # has the lock: it only appends here, and who has the lock, or can get it, does the rest.
        self._abandoned: deque[tuple[Consumer, int]] = deque()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Take the lock."""
        try:
            with self._lock:
                yield
        finally:
            self._drop_abandoned()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Take the lock, if the backend is not closed."""
        with self.locked():
            if self.closed:
                raise ShutDown
            yield

    def abandon(self, consumer: Consumer, tag: int) -> None:
        """Drop a message that nobody will settle; takes the lock, but never waits."""
        self._abandoned.append((consumer, tag))
        self._drop_abandoned()

    def _drop_abandoned(self) -> None:
        # Looked at again after each release: who found the lock taken left it to this thread.
        while self._abandoned and self._lock.acquire(blocking=False):
            try:
                while self._abandoned:
                    consumer, tag = self._abandoned.popleft()
                    consumer.unsettled.pop(tag, None)
                    self.feed(consumer.queue)
            finally:
                self._lock.release()

    def queue(self, name: str) -> Queue:
        """A queue, made with the default properties if there is none."""
        if name not in self.queues:
            self.queues[name] = Queue(QueueConfig(name))
        return self.queues[name]

    def look(self, name: str) -> Queue:
        """A queue, or an empty one if there is none; takes the lock."""
        with self.locked():
            return self.queues.get(name) or Queue(QueueConfig(name))

    def insert(self, queue: Queue, priority: int, body: bytes) -> None:
        """Put a message behind those of its level and of higher ones."""
        heappush(queue.pending, Message(-priority, next(self._numbers), body))
        self.feed(queue)

    def place(self, envelope: Envelope, body: bytes, delay: timedelta, *, deferred: bool) -> None:
        """Put a message on its queue after `delay`; `deferred` counts it as such until then."""
        queue = self.queue(envelope.queue)
        if delay <= AT_ONCE:
            self.insert(queue, envelope.priority, body)
            return
        arrive = partial(self._arrive, queue, envelope.priority, body, deferred=deferred)
        self._clock.call_later(delay, arrive)
        queue.held += 1
        queue.deferred += deferred

    def _arrive(self, queue: Queue, priority: int, body: bytes, *, deferred: bool) -> None:
        with self.locked():
            queue.held -= 1
            queue.deferred -= deferred
            if not self.closed:
                self.insert(queue, priority, body)

    def feed(self, queue: Queue) -> None:
        """Hand out what waits, while a consumer has a free slot; the least busy one is next."""
        while queue.pending:
            free = [consumer for consumer in queue.consumers if consumer.has_room()]
            if not free:
                return
            consumer = min(free, key=lambda consumer: len(consumer.unsettled))
            message = heappop(queue.pending)
            consumer.delivered += 1
            consumer.unsettled[consumer.delivered] = message
            consumer.push(consumer, consumer.delivered, message)
