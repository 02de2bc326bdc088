"""One connection to the file, shared by all threads of a process, and safe across forks.

Who writes while another writes has the other commit for both: transactions that wait are committed
together. It knows nothing of jobs: `store.py` does. Before a fork the connection is closed, because
what SQLite keeps in memory about its locks is copied into the child, while the locks are not.
"""

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar
from weakref import WeakSet

from queuey_sync.backends.sqlite.faults import is_busy, translated
from queuey_sync.backends.sqlite.options import Options
from queuey_sync.backends.sqlite.schema import Database, identity_of, open_database
from queuey_sync.errors import BackendError, BrokerUnavailable, QueueyError, ShutDown

T = TypeVar("T")

_IDENTITY_SECONDS = 1.0
"""How long a file that was removed or replaced may go unnoticed."""


class _Call(Generic[T]):
    """One part of a transaction. Owned by the thread that has the lock of the file."""

    __slots__ = ("done", "error", "operation", "result")

    def __init__(self, operation: Callable[[Database], T]) -> None:
        self.operation = operation
        self.result: T | None = None
        self.error: QueueyError | None = None
        self.done = False

    def run(self, db: Database) -> None:
        self.error = None
        try:
            self.result = self.operation(db)
        except QueueyError as error:  # it has changed nothing, so the others go on
            self.error = error

    def answer(self) -> T:
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value] # it ran, so it is what it returned


def _finish(batch: Iterable[_Call[object]]) -> None:
    for call in batch:
        call.done = True


class StoreFile:
    """The file, as this process sees it. Opened at the first use, and again after a fault.

    Args:
        path: Where it is; it is made if it does not exist.
        options: How to use it.
        opened: Told each time when it was opened, before anything else is done with it.
    """

    def __init__(
        self, path: str, options: Options, opened: Callable[[Database], None] | None = None
    ) -> None:
        self.path = path
        self.options = options
        self._opened = opened
        self._lock = threading.Lock()
        self._db: Database | None = None  # guarded by _lock, as are the next two
        self._opened_by = 0
        self._look_at = 0.0
        self._waiting: deque[_Call[object]] = deque()
        """Appended to by any thread, emptied by the one that has the lock."""
        self._closed = False  # guarded by _lock
        self._changes = 0
        """How often this process opened the file or wrote to it. Guarded by `_lock`."""
        _forking.watch(self)

    def exists(self) -> bool:
        """Whether there is such a file."""
        return Path(self.path).exists()

    def check_exists(self) -> None:
        """Refuse a file that is not there, so that looking at a mistyped path does not make it.

        Raises:
            BackendError: There is none.
        """
        if not self.exists():
            raise BackendError(
                f"there is no store at {self.path}: the first enqueue or worker makes it, or"
                " `queuey-sync declare`"
            )

    def write(self, operation: Callable[[Database], T]) -> T:
        """Run an operation in a transaction, and return when it is committed.

        The operation either raises a `QueueyError` before it changes anything, or nothing.

        Raises:
            BackendError: The file cannot be used; nothing was changed.
        """
        call = _Call(operation)
        self._waiting.append(call)  # type: ignore[arg-type] # its answer is read here alone
        with self._lock:
            if not call.done:
                self._commit_waiting(call)  # type: ignore[arg-type] # as above
        return call.answer()

    def write_one(self, operation: Callable[[Database], None]) -> None:
        """Run an operation of a single statement, which is a transaction by itself; see `write`."""
        if self._lock.locked():  # then the next commit may be for several
            self.write(operation)
            return
        with self._lock:
            try:
                operation(self._database())
                self._changes += 1
            except sqlite3.Error as fault:
                self._drop(fault)
                raise translated(self.path, fault) from fault

    def read(self, operation: Callable[[Database], T]) -> T:
        """Run an operation that changes nothing, on one state of the file."""
        with self._lock:
            try:
                db = self._database()
                db.execute("BEGIN")
                try:
                    return operation(db)
                finally:
                    self._roll_back()
            except sqlite3.Error as fault:
                self._drop(fault)
                raise translated(self.path, fault) from fault

    def version(self, db: Database) -> tuple[int, int]:
        """What differs after every change to the file; to be asked inside `read`."""
        (by_others,) = db.execute("PRAGMA data_version").fetchone()
        return self._changes, by_others

    def close(self) -> None:
        """Let a transaction under way finish, then close for good."""
        with self._lock:
            self._closed = True
            self._close()

    def _take_waiting(self, own: _Call[object]) -> list[_Call[object]]:
        """This thread's own call, which an interrupted thread may have taken, and all others."""
        batch = [own]
        while self._waiting:
            call = self._waiting.popleft()
            if call is not own:
                batch.append(call)
        return batch

    def _commit_waiting(self, own: _Call[object]) -> None:
        batch = self._take_waiting(own)
        begun = False
        try:
            db = self._database()
            db.execute("BEGIN IMMEDIATE")
            begun = True
            for call in batch:
                call.run(db)
            db.execute("COMMIT")
            self._changes += 1
        except sqlite3.Error as fault:
            self._roll_back()
            self._drop(fault)
            for call in batch:
                call.error = translated(self.path, fault)
        except QueueyError as error:  # opening it failed
            for call in batch:
                call.error = error
        except (
            BaseException
        ):  # an interrupt, of a time limit for one, hits this thread's part alone
            if begun and not self._in_transaction():
                _finish(batch)  # it came after the commit; else the others commit for themselves
            raise
        _finish(batch)

    def _in_transaction(self) -> bool:
        return self._db is not None and self._db.in_transaction

    def _roll_back(self) -> None:
        if self._db is not None and self._db.in_transaction:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")

    def _database(self) -> Database:
        db = self._db
        if db is None:
            return self._open()
        if self._opened_by != os.getpid():
            raise BrokerUnavailable(
                f"{self.path} was in use when this process was forked, and not through Python:"
                " first use it after the fork"
            )
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _IDENTITY_SECONDS
            if identity_of(self.path) != db.identity:
                self._close()
                raise BrokerUnavailable(f"{self.path} was removed or replaced while it was in use")
        if db.in_transaction:  # an interrupt has left it
            self._roll_back()
        return db

    def _open(self) -> Database:
        if self._closed:
            raise ShutDown("the store is closed")
        self._db = open_database(self.path, self.options)
        self._opened_by = os.getpid()
        self._changes += 1
        if self._opened is not None:
            self._opened(self._db)
        return self._db

    def _drop(self, fault: sqlite3.Error) -> None:
        """After a fault, open the file anew, to see what it is now."""
        if not is_busy(fault):
            self._close()

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    # Called around a fork, by the thread that forks.

    def before_fork(self) -> None:
        """Let nobody use the file, and close it."""
        self._lock.acquire()
        self._close()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begin anew: nobody here waits for what the parent's threads wanted to write."""
        self._waiting.clear()
        self._lock.release()


class _Forking:
    """Tells every file of a fork; registered with Python when the first file is made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: WeakSet[StoreFile] = WeakSet()  # guarded by _lock
        self._registered = False  # guarded by _lock
        self._closed: list[StoreFile] = []
        """Those of the fork that is under way. Guarded by `_lock`."""

    def watch(self, file: StoreFile) -> None:
        """Tell this file, too."""
        with self._lock:
            self._files.add(file)
            if not self._registered:
                self._registered = True
                os.register_at_fork(
                    before=self._before,
                    after_in_parent=self._in_parent,
                    after_in_child=self._in_child,
                )

    def _before(self) -> None:
        self._lock.acquire()
        self._closed = list(self._files)
        for file in self._closed:
            file.before_fork()

    def _in_parent(self) -> None:
        for file in self._closed:
            file.after_fork_in_parent()
        self._closed = []
        self._lock.release()

    def _in_child(self) -> None:
        for file in self._closed:
            file.after_fork_in_child()
        self._closed = []
        self._lock.release()


_forking = _Forking()
