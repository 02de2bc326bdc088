"""Carrying what a store holds over to another backend, a batch at a time.

A batch is one write transaction around its publishes: nobody else can touch these jobs meanwhile,
and they are deleted when the other backend has confirmed them. Whatever ends it in between, they
are still here, and the next move takes them; so what was in hand may be there twice, and nothing is
lost. What a worker has leased is left alone. `cli/commands/move.py` is for people.
"""

import logging
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, NamedTuple, Protocol

from queuey_sync.backends.sqlite.delivery import MALFORMED, now_ms
from queuey_sync.backends.sqlite.file import StoreFile
from queuey_sync.backends.sqlite.options import read_url
from queuey_sync.backends.sqlite.presence import reap
from queuey_sync.backends.sqlite.schema import Database
from queuey_sync.envelope import Envelope
from queuey_sync.errors import (
    BrokerUnavailable,
    MalformedEnvelope,
    PublishUnconfirmed,
    PublishUnroutable,
    QueueyError,
    ShutDown,
)
from queuey_sync.observe.escaping import one_line

log = logging.getLogger(__name__)

State = Literal["waiting", "held", "dead"]
Failures = dict[int, QueueyError]

_TOGETHER = {"waiting": 200, "held": 50, "dead": 50}
"""How many are one transaction. Those that wait are published together, the others one by one."""
_SELECT = {
    "waiting": "SELECT id, body, NULL FROM waiting"
    " WHERE id > max(:after, (:queue << 48) - 1) AND id < (:queue + 1) << 48"
    " AND (expires_ms IS NULL OR expires_ms > :now) ORDER BY id LIMIT :limit",
    "held": "SELECT id, body, due_ms FROM held"
    " WHERE id > :after AND queue = :queue ORDER BY id LIMIT :limit",
    "dead": "SELECT id, body, reason FROM dead"
    " WHERE id > :after AND queue = :queue ORDER BY id LIMIT :limit",
}
_DELETE = {
    "waiting": "DELETE FROM jobs WHERE id = ?",
    "held": "DELETE FROM held WHERE id = ?",
    "dead": "DELETE FROM dead WHERE id = ?",
}
_COUNTS = """
    SELECT name,
        (SELECT count(*) FROM waiting WHERE id >> 48 = number
            AND (expires_ms IS NULL OR expires_ms > :now)),
        (SELECT count(*) FROM held WHERE queue = number),
        (SELECT count(*) FROM dead WHERE queue = number),
        (SELECT count(*) FROM leases WHERE job >> 48 = number)
    FROM queues
"""


class Target(Protocol):
    """What it takes to receive all of a store."""

    @property
    def declare_dead_letter_queues(self) -> bool:
        """Whether it has a place for dead letters."""
        ...

    def publish_many(self, envelopes: Sequence[Envelope]) -> Failures:
        """Place envelopes on their queues; see `Backend.publish_many`."""
        ...

    def publish(self, envelope: Envelope, delay: timedelta | None = None) -> None:
        """Place an envelope, now or after a delay."""

    def publish_dead(self, queue: str, body: bytes, envelope: Envelope, reason: str) -> None:
        """Place the body of a job among the dead letters of a queue."""

    def publish_malformed(self, queue: str, body: bytes) -> None:
        """Place a body that is no envelope there."""


class Contents(NamedTuple):
    """How many jobs a queue of the store has; `leased` ones are in the hands of workers."""

    waiting: int
    held: int
    dead: int
    leased: int


class _Row(NamedTuple):
    id: int
    body: bytes
    about: int | str | None
    """When it is due, or the reason why it is dead."""


class _Batch(NamedTuple):
    last: int
    """The id up to which the queue was looked through."""
    moved: int
    fault: QueueyError | None
    """What is no fault of a job, and ends the move."""


class Move:
    """Moves jobs out of a store. For one thread.

    Args:
        url: The store, as ``sqlite:///path``.
        queues: The full names of the queues to move; those that the store does not have are empty.
        target: Where the jobs go; it has these queues.

    Attributes:
        moved: How many jobs went over, by where they were.

    Raises:
        ConfigurationError: The URL cannot be read.
        BackendError: There is no such store, or it cannot be used.
    """

    def __init__(self, url: str, queues: Sequence[str], target: Target) -> None:
        self._file = StoreFile(*read_url(url, {}))
        self._file.check_exists()
        self._target = target
        self.moved: dict[State, int] = {"waiting": 0, "held": 0, "dead": 0}
        reap(self._file)
        self._places = self._find_places(queues)
        self._ahead = deque(self._places)
        """What is left of this pass."""
        self._moved_before_pass = 0

    def contents(self) -> dict[str, Contents]:
        """What each queue of the store has, also of those that are not moved."""
        rows = self._file.read(lambda db: db.execute(_COUNTS, {"now": now_ms()}).fetchall())
        return {name: Contents(*counts) for name, *counts in rows}

    def step(self) -> bool:
        """Move a batch; returns False when there is nothing more that could be moved.

        Raises:
            QueueyError: The other backend or the store fails; what was not moved is still here.
        """
        if not self._ahead:
            moved = sum(self.moved.values())
            if moved == self._moved_before_pass:
                return False
            # Others may have enqueued meanwhile, also behind what the last pass had seen.
            self._moved_before_pass = moved
            self._ahead.extend(self._places)
        state, name, queue, after = self._ahead.popleft()
        batch = self._file.write(lambda db: self._move(db, state, name, queue, after))
        self.moved[state] += batch.moved
        if batch.last > after:
            self._ahead.appendleft((state, name, queue, batch.last))
        if batch.fault is not None:
            raise batch.fault
        return True

    def close(self) -> None:
        """Close the store."""
        self._file.close()

    def _find_places(self, queues: Sequence[str]) -> list[tuple[State, str, int, int]]:
        """What to look through: a state of the jobs of a queue, and the id to begin behind."""
        rows = self._file.read(lambda db: db.execute("SELECT name, number FROM queues").fetchall())
        numbers = [(name, number) for name, number in rows if name in queues]
        states: list[State] = ["waiting", "held"]
        if self._target.declare_dead_letter_queues:
            states.append("dead")
        return [(state, name, number, -1) for state in states for name, number in numbers]

    def _move(self, db: Database, state: State, name: str, queue: int, after: int) -> _Batch:
        """One batch, inside a transaction. Raises no `QueueyError`: some of it may have moved."""
        limit = _TOGETHER[state]
        where = {"after": after, "queue": queue, "now": now_ms(), "limit": limit}
        rows = [_Row(*row) for row in db.execute(_SELECT[state], where)]
        failures = self._place(state, name, rows)
        gone = [row for index, row in enumerate(rows) if index not in failures]
        db.executemany(_DELETE[state], [(row.id,) for row in gone])
        fault = next((error for error in failures.values() if _ends_the_move(error)), None)
        if fault is None:
            for index, error in failures.items():
                text = "a job on %s (%s) is left in the store: %s"
                log.warning(text, name, _id_of(rows[index]), one_line(error))
        return _Batch(rows[-1].id if rows else after, len(gone), fault)

    def _place(self, state: State, name: str, rows: Sequence[_Row]) -> Failures:
        """Publish these, and return what failed, by its index."""
        envelopes = {index: _envelope(row) for index, row in enumerate(rows)}
        together = {i: one for i, one in envelopes.items() if one and state == "waiting"}
        indexes = list(together)
        failed = self._target.publish_many(list(together.values())) if together else {}
        failures = {indexes[position]: error for position, error in failed.items()}
        for index, envelope in envelopes.items():
            if index in together:
                continue
            try:
                self._place_one(name, rows[index], envelope)
            except QueueyError as error:
                failures[index] = error
                if _ends_the_move(error):
                    return failures | dict.fromkeys(range(index, len(rows)), error)
        return failures

    def _place_one(self, name: str, row: _Row, envelope: Envelope | None) -> None:
        if envelope is None:
            self._target.publish_malformed(name, row.body)
        elif isinstance(row.about, int):
            rest = timedelta(milliseconds=row.about - now_ms())
            self._target.publish(envelope, rest if rest > timedelta(0) else None)
        elif row.about is not None:
            self._target.publish_dead(name, row.body, envelope, row.about)


def _envelope(row: _Row) -> Envelope | None:
    if row.about == MALFORMED:
        return None
    try:
        return Envelope.decode(row.body)
    except MalformedEnvelope:
        return None


def _id_of(row: _Row) -> str:
    envelope = _envelope(row)
    return f"job {envelope.job_id}" if envelope else "malformed"


def _ends_the_move(error: QueueyError) -> bool:
    return isinstance(error, (BrokerUnavailable, PublishUnconfirmed, PublishUnroutable, ShutDown))
