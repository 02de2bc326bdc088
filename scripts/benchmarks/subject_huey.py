"""huey with its SQLite storage: threads, and neither results nor a scheduler of periodic tasks."""

import sqlite3
from typing import Any
from urllib.parse import parse_qs, urlsplit

import huey
from huey.storage import SqliteStorage

from scripts.benchmarks import recording

_URL = urlsplit(recording.URL)
[_SYNCHRONOUS] = parse_qs(_URL.query)["synchronous"]


class Storage(SqliteStorage):  # type: ignore[misc] # it has no types
    """With the setting of the others; its own option knows no ``normal``."""

    def _create_connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection = super()._create_connection()
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")
        return connection


app: Any = huey.Huey("bench", storage_class=Storage, results=False, filename=_URL.path)


@app.task()  # type: ignore[untyped-decorator] # as above
def take_note(text: str, sent_ns: int) -> None:  # noqa: ARG001 - the job of every subject
    """Do nothing but count."""
    recording.record(sent_ns)


def _send(sent_ns: int) -> None:
    take_note(recording.TEXT, sent_ns)


def load() -> None:
    """Fill the queue."""
    for _ in range(recording.JOBS):
        _send(0)


def work() -> None:
    """Drain it with threads."""
    app.create_consumer(workers=recording.THREADS, periodic=False, initial_delay=0.01).run()


def publish() -> None:
    """Enqueue one by one."""
    recording.time_publishing(_send)


if __name__ == "__main__":
    recording.play({"load": load, "work": work, "publish": publish})
