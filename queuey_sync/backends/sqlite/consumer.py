"""Consuming: one thread that claims jobs for the inbox and commits what the slots have settled.

Each turn is one transaction for everything that came together meanwhile. While nothing happens the
thread asks the file every 40 ms whether others have changed it, once a second whether others are
gone, and renews its own lease. It runs no user code.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty

from queuey_sync.backends.base import Inbox, Listener, Pulse, Survey
from queuey_sync.backends.sqlite import store
from queuey_sync.backends.sqlite.delivery import Placing, SQLiteDelivery, now_ms
from queuey_sync.backends.sqlite.file import StoreFile
from queuey_sync.backends.sqlite.presence import Presence, monotonic_ms, reap
from queuey_sync.backends.sqlite.schema import Database
from queuey_sync.backends.sqlite.turn import OpenQueue, Settled
from queuey_sync.errors import BackendError, ConsumerStopped, QueueyError, SettleError, ShutDown
from queuey_sync.queues import QueueConfig

log = logging.getLogger(__name__)

_POLL = 0.04
"""Seconds between two looks for what other processes did."""
_CHORES = 1.0
"""Seconds between two looks after leases."""
_PRUNE = 10.0
"""Seconds between two cleanings."""
_CLOSE_MARGIN = 2.0
"""Seconds that a close may take beyond those that a locked file may."""


class Consumer:
    """Consumes queues into an inbox (`queuey_sync.backends.base.Consumption`).

    Args:
        file: Where the jobs are.
        configs: What to consume, and how many deliveries may be unsettled at a time.
        inbox: Where deliveries go.
        listener: Hears of the end, and of settlements that failed.
        closed: Called when it is closed.
    """

    def __init__(
        self,
        file: StoreFile,
        configs: Sequence[QueueConfig],
        inbox: Inbox,
        listener: Listener,
        closed: "Callable[[Consumer], None]",
    ) -> None:
        self._file = file
        self._options = file.options
        self._configs = configs
        self._inbox = inbox
        self._listener = listener
        self._on_closed = closed
        self.process = os.getpid()
        """Who may use it."""
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._settled = Settled()  # guarded by _lock, as are the next four
        self._stopped = False
        self._backend_closed = False
        self._closed = False
        self._told = False
        self._closing = False
        """Written once, by the thread that calls `close`."""
        self._turned = time.monotonic()
        """When the thread last went round. Written by the consumer thread."""
        self._surveys: deque[Callable[[Survey], None]] = deque()
        """Who waits for one. Appended by any thread, emptied by the consumer thread."""
        self._thread = threading.Thread(target=self._run, name="queuey-store", daemon=True)
        # The consumer thread owns the rest; `close` does when it is over.
        self._id = 0
        self._token = ""
        self._presence: Presence | None = None
        self._queues: dict[int, OpenQueue] = {}
        """By their number in the file."""
        self._writing = Settled()
        """What is being written."""
        self._delivered = 0
        self._hungry = True
        """Whether there is room for more. Read by others, who learn of a change a moment late."""
        self._seen: tuple[int, int] | None = None
        """The version of the file when it was looked at; None if nobody looked since a claim."""
        self._next_due_ms: int | None = None
        self._chores_at = self._renew_at = self._prune_at = 0.0

    # Called by the worker.

    def pulse(self) -> Pulse:
        """It turns at least once a second."""
        return Pulse(self._turned, consuming=bool(self._id))

    def survey(self, answer: Callable[[Survey], None]) -> None:
        """Have the consumer thread look at all queues; see `Consumption`."""
        self._surveys.append(answer)
        self._wake_up()

    def stop(self, runners: int) -> None:
        """Give back what nobody has taken, then wake the takers; see `Consumption`."""
        with self._lock:
            self._take_no_more()
            for _ in range(runners):
                self._inbox.put(None)
        self._wake_up()

    def close(self) -> None:
        """Commit what was settled, and give back the rest; see `Consumption`."""
        self._closing = True
        self._wake_up()
        limit = self._options.busy_limit.total_seconds() + _CLOSE_MARGIN
        hangs = False
        if self._thread.ident is not None:
            self._thread.join(limit)
            hangs = self._thread.is_alive()
        with self._lock:
            self._closed = True
            settled, self._settled = self._settled, Settled()
        struck_off = False
        if hangs:
            silence = BackendError(f"{self._file.path} did not answer in time")
            self._report(self._writing, silence)
            self._report(settled, silence)
        else:
            struck_off = not self._id or self._leave(settled)
        presence, self._presence = self._presence, None
        if presence is not None:
            presence.leave(struck_off=struck_off)
        self._on_closed(self)

    def _leave(self, settled: Settled) -> bool:
        """Write what was settled, and strike this consumer off; returns whether that worked."""

        def operation(db: Database) -> None:
            store.check_consumer(db, self._id, self._token)
            settled.write(db)
            store.leave(db, self._id)

        try:
            self._file.write(operation)
        except QueueyError as error:
            self._report(settled, error)
            return isinstance(error, store.LeaseLost)
        return True

    def _report(self, settled: Settled, error: QueueyError) -> None:
        for delivery in settled.accepted():
            self._listener.settle_failed(delivery, error)

    # Called by the backend.

    def start(self) -> None:
        """Consume, in a thread of its own."""
        self._thread.start()

    def refuse(self) -> None:
        """Be over before it began, for the backend is closed."""
        self._end(ConsumerStopped(self._configs[0].full_name))

    def backend_closed(self) -> None:
        """Take no more, and tell the listener; what runs can still be acked until `close`."""
        with self._lock:
            self._backend_closed = True
            asked = self._stopped
        if not asked:
            self._end(ConsumerStopped(self._configs[0].full_name))
        self._wake_up()

    def published(self) -> None:
        """Look at once, if there is room: this process has placed something."""
        if self._hungry:
            self._wake_up()

    # Called by deliveries, on any thread.

    def settle(self, delivery: SQLiteDelivery, *, release: bool) -> None:
        """Have an ack or a release committed soon; any number of them cost one transaction."""
        self._refuse_fork()
        with self._lock:
            self._take(delivery)
            (self._settled.released if release else self._settled.acked).append(delivery)
        self._wake_up()

    def replace(self, delivery: SQLiteDelivery, place: Placing) -> None:
        """Place a copy and ack, in one transaction; see `Settlements`."""
        self._refuse_fork()
        with self._lock:
            if self._backend_closed and not delivery.settled:
                raise ShutDown("the store is closed")
            self._take(delivery)

        def operation(db: Database) -> None:
            store.check_consumer(db, self._id, self._token)
            store.check_lease(db, self._id, delivery.job)
            place(db)
            store.finish(db, [delivery.job])

        try:
            self._file.write(operation)
        except store.LeaseLost:
            raise
        except BaseException:
            with self._lock:
                delivery.settled = False
            raise
        with self._lock:
            self._settled.replaced.append(delivery)
        self._wake_up()

    def _refuse_fork(self) -> None:
        # Not under the lock, which another thread may have held when this process was forked.
        if os.getpid() != self.process:
            raise SettleError("a job can only be settled by the process that took it")

    def _take(self, delivery: SQLiteDelivery) -> None:
        if delivery.settled:
            raise SettleError(f"a job of {delivery.queue} was settled already")
        if self._closed:
            raise SettleError(f"a job of {delivery.queue} went back as its consumption closed")
        delivery.settled = True

    def _wake_up(self) -> None:
        if not self._wake.is_set():
            self._wake.set()

    # The consumer thread.

    def _run(self) -> None:
        try:
            self._join()
            while not self._closing:
                self._turn()
                self._wake.wait(self._pause())
                self._wake.clear()
        except Exception as fault:
            if not isinstance(fault, QueueyError):
                log.exception("the consumer thread failed")
            if self._id or not isinstance(fault, QueueyError):
                stopped = ConsumerStopped(self._configs[0].full_name)
                stopped.__cause__ = fault
                self._end(stopped)
            else:
                self._end(fault)

    def _join(self) -> None:
        lease_ms, names = self._options.lease_ms, [config.full_name for config in self._configs]
        rows = self._file.read(lambda db: [store.queue_to_read(db, name) for name in names])
        self._presence = Presence(self._file.path)
        self._token = self._presence.token
        self._id = self._file.write(
            lambda db: store.join(db, self._token, lease_ms, monotonic_ms() + lease_ms, rows)
        )
        self._queues = {
            row.number: OpenQueue(config, row)
            for config, row in zip(self._configs, rows, strict=True)
        }
        log.info("consuming %s from %s", ", ".join(names), self._file.path)

    def _turn(self) -> None:
        now = self._turned = time.monotonic()
        if now >= self._chores_at:
            self._chores_at = now + _CHORES
            self._do_chores(now)
        # First the surveys: whatever was settled before one was asked for is written before it.
        surveys = [self._surveys.popleft() for _ in range(len(self._surveys))]
        with self._lock:
            settled, self._settled = self._settled, Settled()
            taking = not self._stopped
        for delivery in settled.all():
            self._queues[delivery.row.number].unsettled -= 1
        if settled.replaced:
            self._seen = None  # a queue that was full then was not looked at
        open_queues = [queue for queue in self._queues.values() if taking and queue.room()]
        self._hungry = bool(open_queues)
        if settled.unwritten() or (taking and self._look(open_queues)):
            self._exchange(settled, open_queues)
        if surveys and taking:
            self._answer(surveys)

    def _look(self, open_queues: Sequence[OpenQueue]) -> bool:
        """Whether there is something to claim, or to be moved for others to claim."""

        def operation(db: Database) -> bool:
            now, version = now_ms(), self._file.version(db)
            if self._next_due_ms is not None and self._next_due_ms <= now:
                return True
            if version == self._seen:
                return False
            self._seen = version
            self._next_due_ms = store.next_due_ms(db)
            return any(store.any_free(db, queue.row, now) for queue in open_queues)

        return self._file.read(operation)

    def _exchange(self, settled: Settled, open_queues: Sequence[OpenQueue]) -> None:
        """Write what was settled, and claim what there is room for, in one transaction."""

        def operation(db: Database) -> list[list[tuple[int, bytes]]]:
            store.check_consumer(db, self._id, self._token)
            settled.write(db)
            now = now_ms()
            store.release_due(db, now)
            return [
                store.claim(db, self._id, queue.row, queue.room(), now) for queue in open_queues
            ]

        self._writing = settled
        try:
            claimed = self._file.write(operation)
        except BaseException:
            with self._lock:
                self._settled.put_back(settled)
            raise
        finally:
            self._writing = Settled()
        self._next_due_ms = self._seen = None
        with self._lock:
            for queue, jobs in zip(open_queues, claimed, strict=True):
                self._deliver(queue, jobs)

    def _deliver(self, queue: OpenQueue, jobs: Sequence[tuple[int, bytes]]) -> None:
        queue.unsettled += len(jobs)
        deliveries = [SQLiteDelivery(queue.name, queue.row, job, body, self) for job, body in jobs]
        if self._stopped:
            self._settled.untaken += deliveries
            self._wake_up()
            return
        for delivery in deliveries:
            self._inbox.put(delivery)
        self._delivered += len(deliveries)

    def _answer(self, surveys: Sequence[Callable[[Survey], None]]) -> None:
        queues = self._queues.values()
        ready = self._file.read(
            lambda db: {queue.name: store.count_ready(db, queue.row, now_ms()) for queue in queues}
        )
        for answer in surveys:
            answer(Survey(ready, self._delivered))

    def _pause(self) -> float:
        """For how many seconds there is nothing to do unless somebody wakes the thread."""
        until = self._chores_at - time.monotonic()
        if self._stopped:
            return max(until, 0)
        if any(queue.room() for queue in self._queues.values()):
            until = 0 if self._seen is None else min(until, _POLL)
        if self._next_due_ms is not None:
            until = min(until, (self._next_due_ms - now_ms()) / 1_000)
        return max(until, 0)

    def _do_chores(self, now: float) -> None:
        if now >= self._renew_at:
            self._renew_at = now + self._options.lease_ms / 3_000
            self._file.write(self._renew)
        reap(self._file, but=self._id)
        if now >= self._prune_at:
            self._prune_at = now + _PRUNE
            keep_dead_ms = self._options.keep_dead_ms
            self._file.write(lambda db: store.prune(db, now_ms(), keep_dead_ms))

    def _renew(self, db: Database) -> None:
        store.check_consumer(db, self._id, self._token)
        store.renew(db, self._id, monotonic_ms() + self._options.lease_ms)

    # Shared by all of them.

    def _end(self, error: QueueyError) -> None:
        with self._lock:
            told, self._told = self._told, True
            self._take_no_more()
        if not told:
            self._listener.ended(error)

    def _take_no_more(self) -> None:
        """Give back what nobody has taken, once; needs the lock."""
        if self._stopped:
            return
        self._stopped = True
        with suppress(Empty):
            while True:
                delivery = self._inbox.get_nowait()
                if isinstance(delivery, SQLiteDelivery):
                    delivery.settled = True
                    self._settled.untaken.append(delivery)
