"""The backend that keeps jobs in memory: what users and tests make, hold and look into.

It keeps the two laws of `queuey_sync.backends.base`. The object may be shared by threads: each call
is one step under the lock of its store (`store.py`). Read next: `rabbitmq/backend.py`.
"""

from collections.abc import Sequence
from datetime import timedelta

from queuey_sync.backends.base import Backend, Consumption, DeadQueue, Depth, Inbox, Listener
from queuey_sync.backends.memory.consumption import MemoryConsumption
from queuey_sync.backends.memory.dead import MemoryDead
from queuey_sync.backends.memory.store import AT_ONCE, Kind, Queue, Store
from queuey_sync.backends.memory.timer import Clock, TimerThread
from queuey_sync.envelope import Envelope
from queuey_sync.errors import BackendError, ConfigurationError
from queuey_sync.queues import QueueConfig
from queuey_sync.shutdown import Backoff


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
        self._store = Store(clock or self._timer)
        self._running: list[MemoryConsumption] = []
        """What may still run; guarded by the store's lock."""

    def declare(self, configs: Sequence[QueueConfig]) -> None:
        """Make the queues that do not exist yet."""
        with self._store.open():
            for config in configs:
                self._store.queues.setdefault(config.full_name, Queue(config))

    def publish(self, envelope: Envelope, delay: timedelta | None = None) -> None:
        """Place an envelope, now or after `delay`."""
        body = envelope.encode()
        with self._store.open():
            self._store.place(envelope, body, delay or AT_ONCE, deferred=False)

    def publish_raw(self, queue: str, body: bytes) -> None:
        """Place a body as it is, to see what becomes of one that is no envelope."""
        with self._store.open():
            self._store.insert(self._store.queue(queue), 0, body)

    def defer(self, envelope: Envelope, delay: timedelta) -> None:
        """Hold an envelope for `delay`."""
        body = envelope.encode()
        with self._store.open():
            self._store.place(envelope, body, delay, deferred=True)

    def consume(
        self,
        configs: Sequence[QueueConfig],
        inbox: Inbox,
        listener: Listener,
        reconnect: Backoff | None = None,  # noqa: ARG002 - there is no connection to lose
    ) -> Consumption:
        """Start pushing into `inbox`; prefetch is that of the given configs, and 0 is unlimited."""
        consumption = MemoryConsumption(self._store, configs, inbox, listener)
        with self._store.locked():
            refused = self._store.closed
            if not refused:
                self._running = [*(one for one in self._running if one.running), consumption]
                consumption.begin()
        if refused:
            consumption.tell_end()
        return consumption

    def depths(self, configs: Sequence[QueueConfig]) -> list[Depth]:
        """What each of these queues holds; nobody knows when the first of the held ones is due."""
        with self._store.open():
            return [self._depth(config.full_name) for config in configs]

    def _depth(self, name: str) -> Depth:
        queue = self._known(name)
        return Depth(
            ready=len(queue.pending),
            held=queue.held,
            dead=len(queue.dead) + len(queue.buried),
            consumers=len(queue.consumers),
        )

    def open_dead(self, config: QueueConfig) -> DeadQueue:
        """Look into the dead letters of a queue."""
        with self._store.open():
            return MemoryDead(self._store, self._known(config.full_name))

    def _known(self, name: str) -> Queue:
        queue = self._store.queues.get(name)
        if queue is None:
            raise BackendError(f"queue `{name}` does not exist: declare it")
        return queue

    def close(self) -> None:
        """Give back what nobody has taken, end every consumption and drop what is delayed."""
        with self._store.locked():
            self._store.closed = True
            ended = [one for one in self._running if one.running]
            self._running = []
            for consumption in ended:
                consumption.end()
        self._timer.close()
        for consumption in ended:
            consumption.tell_end()

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._store.closed

    def pending(self, queue: str) -> int:
        """How many messages wait on the queue: not handed out, and not delayed."""
        return len(self._store.look(queue).pending)

    def deferred(self, queue: str) -> int:
        """How many deferred messages are held at this moment."""
        return self._store.look(queue).deferred

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
