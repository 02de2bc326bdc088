"""The demo's store, a file beside its results, and a look into it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Self

from queuey_sync import QueueConfig
from queuey_sync.backends.sqlite.backend import SQLiteBackend

SCHEME = "sqlite:"


def store_url(out: Path) -> str:
    return f"{SCHEME}///{out / 'jobs.db'}"


class StoreLook:
    """Counts what is on a queue; the same as `broker.Look` for a store."""

    def __init__(self, url: str, queue: QueueConfig) -> None:
        self._backend = SQLiteBackend(url)
        self._queue = queue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._backend.close()

    def waiting(self) -> int:
        """The jobs that are ready or held; one that a worker has taken does not count."""
        [depth] = self._backend.depths([self._queue])
        return depth.ready + (depth.held or 0)

    def dead(self) -> int:
        [depth] = self._backend.depths([self._queue])
        return depth.dead

    def reasons(self) -> list[str]:
        """Why each dead letter died."""
        return [reason for (reason,) in self._run("SELECT reason FROM dead WHERE queue = :queue")]

    def delete(self) -> None:
        self._run("DELETE FROM jobs WHERE id >> 48 = :queue")
        self._run("DELETE FROM held WHERE queue = :queue")
        self._run("DELETE FROM dead WHERE queue = :queue")

    def _run(self, statement: str) -> list[tuple[str]]:
        number = "(SELECT number FROM queues WHERE name = :name)"
        with closing(sqlite3.connect(self._backend.path, timeout=10)) as file, file:
            statement = statement.replace(":queue", number)
            return file.execute(statement, {"name": self._queue.full_name}).fetchall()
