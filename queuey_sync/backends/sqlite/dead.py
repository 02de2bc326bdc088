"""The dead letters of a queue in the file, looked at and taken away; see `DeadQueue` in `base.py`.

Nothing is held meanwhile: each page is read by itself, and a letter that somebody else has taken
since is not requeued a second time.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from queuey_sync.backends.base import DeadBody
from queuey_sync.backends.sqlite import store
from queuey_sync.backends.sqlite.delivery import now_ms
from queuey_sync.backends.sqlite.file import StoreFile
from queuey_sync.backends.sqlite.schema import Database, QueueRow
from queuey_sync.envelope import Envelope
from queuey_sync.errors import QueueyError

_PAGE = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StoredDead:
    """What is dead when this is made.

    Args:
        file: The store.
        name: The queue.
        placed: Called when jobs were placed.

    Raises:
        BackendError: There is no such queue, or the file cannot be used.
    """

    def __init__(self, file: StoreFile, name: str, placed: Callable[[], None]) -> None:
        self._file = file
        self._placed = placed
        self._queue, self._last = file.read(lambda db: _find(db, name))

    def read(self) -> Iterator[DeadBody]:
        """In the order of their deaths."""
        after = 0
        while rows := self._page(after):
            for number, died_ms, reason, body in rows:
                died_at = _EPOCH + timedelta(milliseconds=died_ms)
                yield DeadBody(number, body, reason, died_at)
                after = number

    def _page(self, after: int) -> list[tuple[int, int, str, bytes]]:
        query = (
            "SELECT id, died_ms, reason, body FROM dead"
            " WHERE queue = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?"
        )
        where = (self._queue.number, after, self._last, _PAGE)
        return self._file.read(lambda db: db.execute(query, where).fetchall())

    def requeue(self, copies: Sequence[tuple[DeadBody, Envelope]]) -> dict[int, QueueyError]:
        """Place and remove in one transaction."""

        def move(db: Database) -> dict[int, QueueyError]:
            failures: dict[int, QueueyError] = {}
            now = now_ms()
            for index, (body, envelope) in enumerate(copies):
                try:
                    queue = store.queue_to_publish(db, envelope.queue)
                except QueueyError as error:
                    failures[index] = error
                    continue
                if _delete(db, body):
                    store.place(db, queue, envelope.priority, envelope.encode(), now)
            return failures

        failures = self._file.write(move)
        self._placed()
        return failures

    def remove(self, bodies: Sequence[DeadBody]) -> None:
        """Delete these."""
        self._file.write(lambda db: [_delete(db, body) for body in bodies])

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def close(self) -> None:
        """The file is the backend's."""


def _find(db: Database, name: str) -> tuple[QueueRow, int]:
    queue = store.queue_to_read(db, name)
    (last,) = db.execute("SELECT max(id) FROM dead WHERE queue = ?", (queue.number,)).fetchone()
    return queue, last or 0


def _delete(db: Database, body: DeadBody) -> bool:
    """Whether it was still there."""
    return db.execute("DELETE FROM dead WHERE id = ?", (body.number,)).rowcount > 0
