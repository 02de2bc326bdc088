"""A backend in the memory of one process: for tests, and the example for writing another one.

It keeps the two laws of `base.py` and lets tests look inside. Envelopes are encoded and decoded as
for a broker, so that what works here works there; nothing else of brokers is known. The object may
be shared by threads. Read next: `rabbitmq/backend.py`.
"""

import itertools
import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from heapq import heappop, heappush
from queue import Empty
from typing import Literal, NamedTuple

from queuey_sync.backends.base import Backend, Consumption, Delivery, Inbox, Listener
from queuey_sync.backends.timer import Clock, TimerThread
from queuey_sync.envelope import Envelope
from queuey_sync.errors import ConfigurationError, ConsumerStopped, SettleError, ShutDown
from queuey_sync.queues import QueueConfig

_log = logging.getLogger(__name__)

_AT_ONCE = timedelta(0)

Kind = Literal["succeeded", "retried", "deferred"]
"""How an acked delivery ended."""


class MemoryBackend(Backend):
    """Keeps jobs in memory, and shows them to tests.

    Queues appear when they are declared, or with the default properties when they are first used.
    The first declaration of a name wins. To look at an unknown queue gives 0 or nothing.

    Args:
        clock: What delays are measured by; real time if omitted.

    Raises:
        ConfigurationError: The clock has no ``call_later``.

    >>> backend = MemoryBackend()
    >>> backend.publish(Envelope.new("mail.send", "mail", b"{}"))
    >>> backend.pending("mail"), backend.queue_names()
    (1, ['mail'])
    """

    def __init__(self, clock: Clock | None = None) -> None:
        if clock is not None and not callable(getattr(clock, "call_later", None)):
            raise ConfigurationError(f"clock: expected an object with call_later(), got {clock!r}")
        self._timer = TimerThread()
        self._store = _Store(clock or self._timer)

    def declare(self, configs: Sequence[QueueConfig]) -> None:
        """Make the queues that do not exist yet."""
        with self._store.open():
            for config in configs:
                self._store.queues.setdefault(config.full_name, _Queue(config))

    def publish(self, envelope: Envelope, delay: timedelta | None = None) -> None:
        """Place an envelope, now or after `delay`."""
        body = envelope.encode()
        with self._store.open():
            self._store.place(envelope, body, delay or _AT_ONCE, held=False)

    def publish_raw(self, queue: str, body: bytes) -> None:
        """Place a body as it is, to see what becomes of one that is no envelope."""
        with self._store.open():
            self._store.insert(self._store.queue(queue), 0, body)

    def defer(self, envelope: Envelope, delay: timedelta) -> None:
        """Hold an envelope for `delay`."""
        body = envelope.encode()
        with self._store.open():
            self._store.place(envelope, body, delay, held=True)

    def consume(
        self, configs: Sequence[QueueConfig], inbox: Inbox, listener: Listener
    ) -> Consumption:
        """Start pushing into `inbox`; prefetch is that of the given configs, and 0 is unlimited."""
        consumption = _MemoryConsumption(self._store, configs, inbox, listener)
        if not consumption.start():
            consumption.ended()
        return consumption

    def close(self) -> None:
        """Give back what nobody has taken, end every consumption and drop what is delayed."""
        with self._store.locked():
            self._store.closed = True
            running, self._store.running = self._store.running, []
            for consumption in running:
                consumption.give_back()
        self._timer.close()
        for consumption in running:
            consumption.ended()

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._store.closed

    def pending(self, queue: str) -> int:
        """How many messages wait on the queue: not handed out, and not delayed."""
        return len(self._store.look(queue).pending)

    def deferred(self, queue: str) -> int:
        """How many deferred messages are held at this moment."""
        return self._store.look(queue).held

    def acked(self, queue: str) -> list[Envelope]:
        """Every acked envelope, in order."""
        return [envelope for envelope, _ in self.settled(queue)]

    def succeeded(self, queue: str) -> list[Envelope]:
        """The acked envelopes whose job is done, in order."""
        return [envelope for envelope, kind in self.settled(queue) if kind == "succeeded"]

    def retried(self, queue: str) -> list[Envelope]:
        """The acked envelopes that another attempt follows, in order."""
        return [envelope for envelope, kind in self.settled(queue) if kind == "retried"]

    def settled(self, queue: str) -> list[tuple[Envelope, Kind]]:
        """Every acked envelope and how it ended, in order."""
        return list(self._store.look(queue).settled)

    def dead_letters(self, queue: str) -> list[tuple[Envelope, str]]:
        """The dead-lettered envelopes and their reasons, in order."""
        return list(self._store.look(queue).dead)

    def buried(self, queue: str) -> list[bytes]:
        """The bodies that were no envelopes, in order."""
        return list(self._store.look(queue).buried)

    def queue_names(self) -> list[str]:
        """The names of all queues, sorted."""
        with self._store.locked():
            return sorted(self._store.queues)

    def queue_config(self, queue: str) -> QueueConfig | None:
        """What the queue was first declared with, or None for an unknown one."""
        with self._store.locked():
            return self._store.queues[queue].config if queue in self._store.queues else None


class _Message(NamedTuple):
    """Sorts as it is served: higher levels first, older ones first within a level."""

    rank: int
    number: int
    body: bytes


@dataclass(eq=False)
class _Queue:
    """Guarded by the store's lock."""

    config: QueueConfig
    pending: list[_Message] = field(default_factory=list)
    held: int = 0
    consumers: "list[_Consumer]" = field(default_factory=list)
    settled: list[tuple[Envelope, Kind]] = field(default_factory=list)
    dead: list[tuple[Envelope, str]] = field(default_factory=list)
    buried: list[bytes] = field(default_factory=list)


@dataclass(eq=False)
class _Consumer:
    """One queue of a consumption; guarded by the store's lock."""

    queue: _Queue
    prefetch: int
    inbox: Inbox
    unsettled: int = 0

    def has_room(self) -> bool:
        return self.prefetch == 0 or self.unsettled < self.prefetch


class _Store:
    """The queues, and how messages move; methods need the lock unless they say they take it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.queues: dict[str, _Queue] = {}  # guarded by _lock
        self.running: list[_MemoryConsumption] = []  # guarded by _lock
        self.closed = False  # written under _lock
        # The garbage collector throws deliveries away at any point of any thread, also of one that
        # has the lock: it only appends here, and who has the lock, or can get it, does the rest.
        self._abandoned: deque[_Consumer] = deque()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Take the lock."""
        try:
            with self._lock:
                yield
        finally:
            self._free_abandoned()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Take the lock, if the backend is not closed."""
        with self.locked():
            if self.closed:
                raise ShutDown
            yield

    def abandon(self, consumer: _Consumer) -> None:
        """Free the slot of a delivery that nobody will settle; takes the lock, but never waits."""
        self._abandoned.append(consumer)
        self._free_abandoned()

    def _free_abandoned(self) -> None:
        # Looked at again after each release: who found the lock taken left it to this thread.
        while self._abandoned and self._lock.acquire(blocking=False):
            try:
                while self._abandoned:
                    self.free_slot(self._abandoned.popleft())
            finally:
                self._lock.release()

    def queue(self, name: str) -> _Queue:
        """A queue, made with the default properties if there is none."""
        if name not in self.queues:
            self.queues[name] = _Queue(QueueConfig(name))
        return self.queues[name]

    def look(self, name: str) -> _Queue:
        """A queue, or an empty one if there is none; takes the lock."""
        with self.locked():
            return self.queues.get(name) or _Queue(QueueConfig(name))

    def insert(self, queue: _Queue, priority: int, body: bytes) -> None:
        """Put a message behind those of its level and of higher ones."""
        heappush(queue.pending, _Message(-priority, next(self._numbers), body))
        self.feed(queue)

    def place(self, envelope: Envelope, body: bytes, delay: timedelta, *, held: bool) -> None:
        """Put a message on its queue after `delay`; `held` counts it as deferred until then."""
        queue = self.queue(envelope.queue)
        if delay <= _AT_ONCE:
            self.insert(queue, envelope.priority, body)
            return
        arrive = partial(self._arrive, queue, envelope.priority, body, held=held)
        self._clock.call_later(delay, arrive)
        queue.held += held

    def _arrive(self, queue: _Queue, priority: int, body: bytes, *, held: bool) -> None:
        with self.locked():
            queue.held -= held
            if not self.closed:
                self.insert(queue, priority, body)

    def feed(self, queue: _Queue) -> None:
        """Hand out what waits, while a consumer has a free slot; the least busy one is next."""
        while queue.pending:
            free = [consumer for consumer in queue.consumers if consumer.has_room()]
            if not free:
                return
            consumer = min(free, key=lambda consumer: consumer.unsettled)
            consumer.unsettled += 1
            consumer.inbox.put(_MemoryDelivery(self, consumer, heappop(queue.pending)))

    def free_slot(self, consumer: _Consumer) -> None:
        """Let the consumer have the next message."""
        consumer.unsettled -= 1
        self.feed(consumer.queue)


class _MemoryDelivery(Delivery):
    def __init__(self, store: _Store, consumer: _Consumer, message: _Message) -> None:
        self.queue = consumer.queue.config.full_name
        self.body = message.body
        self._store = store
        self._consumer = consumer
        self._message = message
        self._envelope: Envelope | None = None  # decoding twice is harmless
        self._settled = False  # guarded by the store's lock

    @property
    def envelope(self) -> Envelope:
        if self._envelope is None:
            self._envelope = Envelope.decode(self.body)
        return self._envelope

    def ack(self) -> None:
        with self._settling("ack", even_closed=True) as queue:
            queue.settled.append((self.envelope, "succeeded"))

    def retry(self, next_attempt: Envelope, delay: timedelta) -> None:
        envelope, body = self.envelope, next_attempt.encode()
        with self._settling("retry") as queue:
            self._store.place(next_attempt, body, delay, held=False)
            queue.settled.append((envelope, "retried"))

    def defer(self, deferred: Envelope, delay: timedelta) -> None:
        envelope, body = self.envelope, deferred.encode()
        with self._settling("defer") as queue:
            self._store.place(deferred, body, delay, held=True)
            queue.settled.append((envelope, "deferred"))

    def dead_letter(self, reason: str) -> None:
        with self._settling("dead_letter"):
            self._store.queue(self.envelope.queue).dead.append((self.envelope, reason))

    def release(self) -> None:
        with self._settling("release"):
            self.give_back()

    def bury(self) -> None:
        try:
            with self._settling("bury") as queue:
                queue.buried.append(self.body)
        except (SettleError, ShutDown) as error:
            _log.warning("a malformed body from queue `%s` was not buried: %s", self.queue, error)
        else:
            _log.warning("buried a malformed body from queue `%s`", self.queue)

    def give_back(self) -> None:
        """Put the message where it was; needs the store's lock."""
        self._settled = True
        heappush(self._consumer.queue.pending, self._message)

    @contextmanager
    def _settling(self, call: str, *, even_closed: bool = False) -> Iterator[_Queue]:
        with self._store.locked():
            if self._settled:
                raise SettleError(f"{call} on a settled delivery of queue `{self.queue}`")
            if self._store.closed and not even_closed:
                raise ShutDown
            yield self._consumer.queue
            self._settled = True
            self._store.free_slot(self._consumer)

    def __del__(self) -> None:
        if not self._settled:
            self._store.abandon(self._consumer)


class _MemoryConsumption:
    def __init__(
        self, store: _Store, configs: Sequence[QueueConfig], inbox: Inbox, listener: Listener
    ) -> None:
        self._store = store
        self._configs = configs
        self._inbox = inbox
        self._listener = listener
        self._consumers: list[_Consumer] = []  # guarded by the store's lock

    def start(self) -> bool:
        """Begin to push; False when the backend is closed."""
        with self._store.locked():
            if self._store.closed:
                return False
            self._store.running.append(self)
            for config in self._configs:
                queue = self._store.queue(config.full_name)
                self._consumers.append(_Consumer(queue, config.prefetch, self._inbox))
                queue.consumers.append(self._consumers[-1])
                self._store.feed(queue)
        return True

    def ended(self) -> None:
        """Tell the listener that nothing more will come."""
        self._listener.ended(ConsumerStopped(self._configs[0].full_name))

    def stop(self, runners: int) -> None:
        with self._store.locked():
            if self in self._store.running:
                self._store.running.remove(self)
            self.give_back()
        for _ in range(runners):
            self._inbox.put(None)

    def close(self) -> None:
        """Do nothing: settling takes effect at once here."""

    def give_back(self) -> None:
        """Push no more, and put back what nobody has taken; needs the store's lock."""
        for consumer in self._consumers:
            consumer.queue.consumers.remove(consumer)
        with suppress(Empty):
            while True:
                delivery = self._inbox.get_nowait()
                if isinstance(delivery, _MemoryDelivery):
                    delivery.give_back()
        for consumer in self._consumers:
            self._store.feed(consumer.queue)
        self._consumers = []
