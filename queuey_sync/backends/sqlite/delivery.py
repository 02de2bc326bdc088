"""One job in the hands of a worker.

An ack or a release is accepted at once, and committed soon by the consumer thread together with
others; whatever places a copy returns when copy and ack are committed, in one transaction.
"""

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from queuey_sync.backends.base import Delivery
from queuey_sync.backends.sqlite import store
from queuey_sync.backends.sqlite.schema import Database, QueueRow
from queuey_sync.durations import ceil_ms
from queuey_sync.envelope import Envelope
from queuey_sync.errors import QueueyError
from queuey_sync.observe.escaping import one_line

log = logging.getLogger(__name__)

MALFORMED = "malformed envelope"
"""The reason of a dead letter that is no envelope."""

Placing = Callable[[Database], None]
"""Places a copy; part of a transaction."""


class Settlements(Protocol):
    """Takes settlements to the file: the consumer."""

    def settle(self, delivery: "SQLiteDelivery", *, release: bool) -> None:
        """Have an ack or a release committed soon."""

    def replace(self, delivery: "SQLiteDelivery", place: Placing) -> None:
        """Place a copy and ack, in one transaction, and return when it is committed."""


class SQLiteDelivery(Delivery):
    """One job.

    Args:
        queue: The name of its queue.
        row: The same queue in the file.
        job: The id of the job in the file.
        body: What it says.
        settlements: Whom to tell how it ended.
    """

    __slots__ = ("_envelope", "_settlements", "body", "job", "queue", "row", "settled")

    def __init__(
        self, queue: str, row: QueueRow, job: int, body: bytes, settlements: Settlements
    ) -> None:
        self.queue = queue
        self.body = body
        self.row = row
        self.job = job
        self.settled = False
        """Guarded by the lock of its consumer."""
        self._settlements = settlements
        self._envelope: Envelope | None = None  # decoding twice is harmless

    @property
    def envelope(self) -> Envelope:
        """The decoded body."""
        if self._envelope is None:
            self._envelope = Envelope.decode(self.body)
        return self._envelope

    def ack(self) -> None:
        """The job is done with."""
        self._settlements.settle(self, release=False)

    def release(self) -> None:
        """Give the job back to its queue."""
        self._settlements.settle(self, release=True)

    def retry(self, next_attempt: Envelope, delay: timedelta) -> None:
        """Place the next attempt and ack, in one transaction."""
        self._settlements.replace(self, placing(next_attempt, next_attempt.encode(), delay))

    def defer(self, deferred: Envelope, delay: timedelta) -> None:
        """Hold the deferred job and ack, in one transaction."""
        self._settlements.replace(self, placing(deferred, deferred.encode(), delay))

    def dead_letter(self, reason: str) -> None:
        """Keep the body with its reason and ack, in one transaction."""
        envelope = self.envelope

        def place(db: Database) -> None:
            queue = store.queue_to_publish(db, envelope.queue)
            store.bury(db, queue, printable(reason), self.body, now_ms())

        self._settlements.replace(self, place)

    def bury(self) -> None:
        """Keep the malformed body and ack, in one transaction."""
        log.warning(
            "a message of %d bytes on %s is no envelope; it goes to the dead letters verbatim",
            len(self.body),
            self.queue,
        )
        try:
            self._settlements.replace(
                self, lambda db: store.bury(db, self.row, MALFORMED, self.body, now_ms())
            )
        except QueueyError as error:
            text = "a malformed message on %s could not be settled: %s"
            log.error(text, self.queue, one_line(error))


def placing(envelope: Envelope, body: bytes, delay: timedelta | None) -> Placing:
    """What places an envelope, given with its body, on its queue, at once or when it is due."""
    name, priority = envelope.queue, envelope.priority
    due_ms = None if not delay else _due_ms(delay)

    def place(db: Database) -> None:
        queue = db.queues.get(name) or store.queue_to_publish(db, name)
        if due_ms is None:
            store.place(db, queue, priority, body, now_ms())
        else:
            store.hold(db, queue, priority, body, due_ms)

    return place


def now_ms() -> int:
    """Unix time, rounded down."""
    return time.time_ns() // 1_000_000


def _due_ms(delay: timedelta) -> int:
    """When a delay that begins now is over, rounded up: nothing is released early."""
    return -(-time.time_ns() // 1_000_000) + ceil_ms(delay)


def printable(reason: str) -> str:
    """A reason that can be stored: lone surrogates become ``?``."""
    return reason.encode(errors="replace").decode()
