"""A store in a fresh file, and what looks into it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Unpack

import pytest

from queuey_sync.backends.base import Inbox
from queuey_sync.backends.sqlite.backend import SQLiteBackend
from queuey_sync.backends.sqlite.consumer import Consumer
from queuey_sync.backends.sqlite.options import OptionKeywords
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import Listener

QUEUE = QueueConfig("q")


class Consuming:
    """A consumption of a test, with its inbox and its listener."""

    def __init__(self, backend: SQLiteBackend, *configs: QueueConfig) -> None:
        self.inbox = Inbox()
        self.listener = Listener()
        consumption = backend.consume(configs or [QUEUE], self.inbox, self.listener)
        assert isinstance(consumption, Consumer)
        self.consumption = consumption

    def end(self) -> None:
        """Stop and close."""
        self.consumption.stop(0)
        self.consumption.close()


class Store:
    """Backends on one file; all of them are closed at the end of the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._backends: list[SQLiteBackend] = []
        self._consuming: list[Consuming] = []

    def backend(self, **options: Unpack[OptionKeywords]) -> SQLiteBackend:
        """One more backend, with the queue of the tests declared."""
        backend = self.undeclared(**options)
        backend.declare([QUEUE])
        return backend

    def undeclared(self, **options: Unpack[OptionKeywords]) -> SQLiteBackend:
        """One more backend."""
        backend = SQLiteBackend(f"sqlite:///{self.path}", **options)
        self._backends.append(backend)
        return backend

    def consume(self, backend: SQLiteBackend, *configs: QueueConfig) -> Consuming:
        """One more consumption."""
        consuming = Consuming(backend, *configs)
        self._consuming.append(consuming)
        return consuming

    def sql(self, statement: str, *values: object) -> list[Any]:
        """Read or change the file behind everybody's back."""
        with closing(sqlite3.connect(self.path, timeout=5)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """End everything; a consumption that a test has closed is left alone."""
        for consuming in self._consuming:
            consuming.end()
        for backend in self._backends:
            backend.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A file that does not exist yet."""
    store = Store(tmp_path / "jobs.db")
    yield store
    store.close()


@pytest.fixture
def locked(store: Store) -> Iterator[Callable[[], None]]:
    """Called, it keeps the file locked for writing until the end of the test."""
    connection = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)

    def lock() -> None:
        connection.execute("BEGIN IMMEDIATE")

    yield lock
    connection.close()
