"""How jobs move in the file: SQL over a connection, inside a transaction of `file.py`.

Pure functions: no clock, no threads, no locks. What changes something raises a `QueueyError`, if at
all, before its first change, so that a transaction may go on with its other parts. The tables are
in `schema.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from queuey_sync.backends.sqlite.schema import Database, QueueRow
from queuey_sync.durations import ceil_ms
from queuey_sync.errors import BackendError, PublishUnroutable, SettleError
from queuey_sync.queues import QueueConfig

_QUEUE_SHIFT, _LEVEL_SHIFT = 48, 40
_HIGHEST_LEVEL = 255
_PLACE = """
    INSERT INTO jobs (id, expires_ms, body)
    VALUES (coalesce((SELECT max(id) FROM jobs WHERE id BETWEEN ? AND ?), ?) + 1, ?, ?)
"""
_AT_ONCE = 1_000
"""How many held jobs are moved in one transaction; the next one has the rest."""
_SPARE_PAGES = 1_024
"""How many unused pages the file gives back at a time, and keeps at least."""
_PROPERTIES = ("durable", "message_ttl_ms", "max_priority")


class LeaseLost(SettleError):
    """The jobs of a consumer were given to others, since it had shown no sign of life."""

    def __init__(self) -> None:
        super().__init__("the lease ended while the job ran, or its consumption was closed")


class ConsumerRow(NamedTuple):
    """Somebody who consumes."""

    id: int
    token: str
    lease_ms: int
    lease_end_ms: int

    def is_over(self, now_ms: int) -> bool:
        """Whether the lease has ended; one that ends too late is of an earlier boot."""
        return not 0 < self.lease_end_ms - now_ms <= self.lease_ms


# Queues.


def declare(db: Database, configs: Iterable[QueueConfig]) -> None:
    """Make the queues that do not exist; refuse what differs from one that does."""
    fresh = []
    for config in configs:
        wanted = _properties(config)
        found = db.execute(
            "SELECT durable, message_ttl_ms, max_priority FROM queues WHERE name = ?",
            (config.full_name,),
        ).fetchone()
        if found is None:
            fresh.append((config.full_name, *wanted))
        for name, present, value in zip(_PROPERTIES, found or wanted, wanted, strict=True):
            if present != value:
                raise BackendError(
                    f"queue `{config.full_name}` exists with {name} {present}, and {value} is"
                    " wanted: declare it as it is, give it another name, or change its row in the"
                    " table `queues`"
                )
    db.executemany(
        "INSERT OR IGNORE INTO queues (name, durable, message_ttl_ms, max_priority)"
        " VALUES (?, ?, ?, ?)",
        fresh,
    )


def _properties(config: QueueConfig) -> tuple[int, int | None, int | None]:
    ttl = config.message_ttl
    return int(config.durable), None if ttl is None else ceil_ms(ttl), config.max_priority


def find_queue(db: Database, name: str) -> QueueRow | None:
    """A queue by its name."""
    queue = db.queues.get(name)
    if queue is None:
        row = db.execute(
            "SELECT number, message_ttl_ms FROM queues WHERE name = ?", (name,)
        ).fetchone()
        if row is None:
            return None
        queue = db.queues[name] = QueueRow(*row)
    return queue


def queue_to_publish(db: Database, name: str) -> QueueRow:
    """A queue that a job is for."""
    queue = find_queue(db, name)
    if queue is None:
        raise PublishUnroutable(f"queue `{name}` does not exist: declare it, or mend its name")
    return queue


def queue_to_read(db: Database, name: str) -> QueueRow:
    """A queue that is to be consumed or looked at."""
    queue = find_queue(db, name)
    if queue is None:
        raise BackendError(
            f"queue `{name}` does not exist: declare it, as `queuey-sync declare` does"
        )
    return queue


# Placing.


def place(db: Database, queue: QueueRow, priority: int, body: bytes, now_ms: int) -> None:
    """Put a job behind those of its level and of higher ones."""
    db.execute(_PLACE, _row(queue, priority, body, now_ms))


def place_all(db: Database, jobs: Iterable[tuple[QueueRow, int, bytes]], now_ms: int) -> None:
    """Put jobs, each given as queue, level and body, on their queues, in order."""
    db.executemany(_PLACE, [_row(*job, now_ms) for job in jobs])


def hold(db: Database, queue: QueueRow, priority: int, body: bytes, due_ms: int) -> None:
    """Put a job aside until it is due."""
    db.execute(
        "INSERT INTO held (due_ms, queue, priority, body) VALUES (?, ?, ?, ?)",
        (due_ms, queue.number, priority, body),
    )


def bury(db: Database, queue: QueueRow, reason: str, body: bytes, now_ms: int) -> None:
    """Keep a body as a dead letter."""
    db.execute(
        "INSERT INTO dead (queue, died_ms, reason, body) VALUES (?, ?, ?, ?)",
        (queue.number, now_ms, reason, body),
    )


def _row(
    queue: QueueRow, priority: int, body: bytes, now_ms: int
) -> tuple[int, int, int, int | None, bytes]:
    first = queue.number << _QUEUE_SHIFT | (_HIGHEST_LEVEL - priority) << _LEVEL_SHIFT
    last = first + (1 << _LEVEL_SHIFT) - 1
    ttl = queue.message_ttl_ms
    return first, last, first, None if ttl is None else now_ms + ttl, body


def _ids(number: int) -> tuple[int, int]:
    """The first and the last id that a job of this queue can have."""
    return number << _QUEUE_SHIFT, (number + 1 << _QUEUE_SHIFT) - 1


def next_due_ms(db: Database) -> int | None:
    """When the first of the held jobs is due, on whatever queue."""
    (due_ms,) = db.execute("SELECT min(due_ms) FROM held").fetchone()
    return None if due_ms is None else int(due_ms)


def release_due(db: Database, now_ms: int) -> None:
    """Put the held jobs that are due on their queues, the longest due first."""
    due = db.execute(
        "SELECT id, priority, body, number, message_ttl_ms FROM held JOIN queues ON number = queue"
        " WHERE due_ms <= ? ORDER BY due_ms, id LIMIT ?",
        (now_ms, _AT_ONCE),
    ).fetchall()
    for id_, priority, body, number, ttl_ms in due:
        place(db, QueueRow(number, ttl_ms), priority, body, now_ms)
        db.execute("DELETE FROM held WHERE id = ?", (id_,))


# Consumers.


def join(
    db: Database, token: str, lease_ms: int, lease_end_ms: int, queues: Iterable[QueueRow]
) -> int:
    """Enter a consumer, and return its id, which nobody ever has again."""
    cursor = db.execute(
        "INSERT INTO consumers (token, lease_ms, lease_end_ms) VALUES (?, ?, ?)",
        (token, lease_ms, lease_end_ms),
    )
    consumer = int(cursor.lastrowid or 0)
    db.executemany(
        "INSERT INTO consumed (consumer, queue) VALUES (?, ?)",
        [(consumer, queue.number) for queue in queues],
    )
    return consumer


def renew(db: Database, consumer: int, lease_end_ms: int) -> None:
    """Show a sign of life."""
    db.execute("UPDATE consumers SET lease_end_ms = ? WHERE id = ?", (lease_end_ms, consumer))


def leave(db: Database, consumer: int) -> None:
    """Strike a consumer off; what it still had waits again, in its old place."""
    db.execute("DELETE FROM leases WHERE consumer = ?", (consumer,))
    db.execute("DELETE FROM consumed WHERE consumer = ?", (consumer,))
    db.execute("DELETE FROM consumers WHERE id = ?", (consumer,))


def gone(db: Database, is_gone: Callable[[ConsumerRow], bool]) -> list[ConsumerRow]:
    """The consumers of which `is_gone` says that they are."""
    rows = db.execute("SELECT id, token, lease_ms, lease_end_ms FROM consumers").fetchall()
    return [row for row in map(ConsumerRow._make, rows) if is_gone(row)]


def check_consumer(db: Database, consumer: int, token: str) -> None:
    """Refuse one that was struck off; while it is not, all that it leased is still its own.

    The token tells it from one with the same id in a file that has taken the place of its own.
    """
    found = db.execute("SELECT 1 FROM consumers WHERE id = ? AND token = ?", (consumer, token))
    if found.fetchone() is None:
        raise LeaseLost


def check_lease(db: Database, consumer: int, job: int) -> None:
    """Refuse a job that is not leased to this consumer."""
    found = db.execute("SELECT 1 FROM leases WHERE job = ? AND consumer = ?", (job, consumer))
    if found.fetchone() is None:
        raise LeaseLost


# Claiming and settling.


def any_free(db: Database, queue: QueueRow, now_ms: int) -> bool:
    """Whether a job waits on this queue."""
    found = db.execute(
        "SELECT 1 FROM waiting WHERE id BETWEEN ? AND ?"
        " AND (expires_ms IS NULL OR expires_ms > ?) LIMIT 1",
        (*_ids(queue.number), now_ms),
    )
    return found.fetchone() is not None


def claim(
    db: Database, consumer: int, queue: QueueRow, limit: int, now_ms: int
) -> list[tuple[int, bytes]]:
    """Lease the first jobs of a queue to a consumer: their ids and bodies, in order."""
    jobs = db.execute(
        "SELECT id, body FROM waiting WHERE id BETWEEN ? AND ?"
        " AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY id LIMIT ?",
        (*_ids(queue.number), now_ms, limit),
    ).fetchall()
    db.executemany(
        "INSERT INTO leases (job, consumer) VALUES (?, ?)", [(id_, consumer) for id_, _ in jobs]
    )
    return jobs


def finish(db: Database, jobs: Sequence[int]) -> None:
    """Delete leased jobs, which are done with; the caller has checked the lease."""
    give_back(db, jobs)
    db.executemany("DELETE FROM jobs WHERE id = ?", [(id_,) for id_ in jobs])


def give_back(db: Database, jobs: Sequence[int]) -> None:
    """Let leased jobs wait again, in their old place; the caller has checked the lease."""
    db.executemany("DELETE FROM leases WHERE job = ?", [(id_,) for id_ in jobs])


# Looking and cleaning.


class Counts(NamedTuple):
    """What one queue holds."""

    ready: int
    held: int
    dead: int
    consumers: int
    next_due_ms: int | None


def count_ready(db: Database, queue: QueueRow, now_ms: int) -> int:
    """How many jobs wait on a queue, those included that are due and not there yet."""
    (free,) = db.execute(
        "SELECT count(*) FROM waiting WHERE id BETWEEN ? AND ?"
        " AND (expires_ms IS NULL OR expires_ms > ?)",
        (*_ids(queue.number), now_ms),
    ).fetchone()
    (due,) = db.execute(
        "SELECT count(*) FROM held WHERE queue = ? AND due_ms <= ?", (queue.number, now_ms)
    ).fetchone()
    return int(free + due)


def count(db: Database, queue: QueueRow, now_ms: int) -> Counts:
    """What a queue holds."""
    held, next_due = db.execute(
        "SELECT count(*), min(due_ms) FROM held WHERE queue = ? AND due_ms > ?",
        (queue.number, now_ms),
    ).fetchone()
    (dead,) = db.execute("SELECT count(*) FROM dead WHERE queue = ?", (queue.number,)).fetchone()
    (consumers,) = db.execute(
        "SELECT count(*) FROM consumed WHERE queue = ?", (queue.number,)
    ).fetchone()
    return Counts(count_ready(db, queue, now_ms), held, dead, consumers, next_due)


def prune(db: Database, now_ms: int, keep_dead_ms: int | None) -> None:
    """Delete what is too old, and give some of the unused pages back to the file system."""
    db.execute(
        "DELETE FROM jobs WHERE expires_ms <= ? AND id NOT IN (SELECT job FROM leases)",
        (now_ms,),
    )
    if keep_dead_ms is not None:
        db.execute("DELETE FROM dead WHERE died_ms <= ?", (now_ms - keep_dead_ms,))
    (unused,) = db.execute("PRAGMA freelist_count").fetchone()
    if unused > 2 * _SPARE_PAGES:
        for _ in range(_SPARE_PAGES):  # Python's module gives back one at a time, whatever it asks
            db.execute("PRAGMA incremental_vacuum(1)")
