"""What is in the file, and how a connection to it is opened, refused or brought up to date.

A file is ours if its header holds our application id; its schema has a version, and `_STEPS` leads
from each version to the next. Read next: `store.py`, which works with these tables.

========= ==================================================================================
queues    the declared properties of each queue, and its number
jobs      every job that waits or is being worked on; written once and deleted once
leases    which of the jobs is in whose hands
waiting   the jobs without a lease
held      retries, delays and deferrals that are not due yet
dead      dead letters and malformed bodies
consumers who consumes; ``lease_end_ms`` is on the machine's monotonic clock, which neither jumps
          nor counts the sleep of a laptop; all other times are Unix time
consumed  who consumes which queue
========= ==================================================================================

The id of a job says where it stands: 15 bits for the number of its queue, 8 for how far its level
is below the highest, and a counter. So the order of the table is the order of service, an insert
writes one page, and a job that is given back keeps its place.
"""

import os
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from queuey_sync.backends.sqlite.faults import is_busy, translated
from queuey_sync.backends.sqlite.options import Options
from queuey_sync.errors import BackendError

APPLICATION_ID = 0x71756579
"""`quey`, in the header of every file of ours."""

_STEPS = [
    """
    CREATE TABLE queues (
        number INTEGER PRIMARY KEY CHECK (number BETWEEN 1 AND 32767),
        name TEXT NOT NULL UNIQUE,
        durable INTEGER NOT NULL,
        message_ttl_ms INTEGER,
        max_priority INTEGER
    );
    CREATE TABLE jobs (id INTEGER PRIMARY KEY, expires_ms INTEGER, body BLOB NOT NULL);
    CREATE INDEX jobs_expiring ON jobs (expires_ms) WHERE expires_ms IS NOT NULL;
    CREATE TABLE leases (job INTEGER PRIMARY KEY, consumer INTEGER NOT NULL);
    CREATE VIEW waiting AS
        SELECT id, expires_ms, body FROM jobs
        WHERE NOT EXISTS (SELECT 1 FROM leases WHERE job = jobs.id);
    CREATE TABLE held (
        id INTEGER PRIMARY KEY,
        due_ms INTEGER NOT NULL,
        queue INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX held_due ON held (due_ms);
    CREATE TABLE dead (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        queue INTEGER NOT NULL,
        died_ms INTEGER NOT NULL,
        reason TEXT NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX dead_died ON dead (died_ms);
    CREATE TABLE consumers (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        token TEXT NOT NULL,
        lease_ms INTEGER NOT NULL,
        lease_end_ms INTEGER NOT NULL
    );
    CREATE TABLE consumed (
        consumer INTEGER NOT NULL,
        queue INTEGER NOT NULL,
        PRIMARY KEY (consumer, queue)
    ) WITHOUT ROWID;
    """,
]
"""The step at index n leads from version n to n + 1; released ones are never changed."""

_PAGE_BYTES = 2_048
"""Of a new file: most jobs are short, and each one that is enqueued writes a page to the log."""
_LOG_BYTES = {"normal": 4 * 2**20, "full": 2**20}
"""When the log is so long, it is moved into the file, which costs two waits for the disk.

Where each commit waits anyway it is better short: to lengthen a file makes every wait longer.
"""
_RETRY = 0.01
"""Seconds between two attempts at what SQLite does not wait for by itself."""


class QueueRow(NamedTuple):
    """A queue of the file."""

    number: int
    message_ttl_ms: int | None


class Database(sqlite3.Connection):
    """A connection, with what was learned through it. Guarded by the lock of its `StoreFile`."""

    queues: dict[str, QueueRow]
    """The queues seen so far, by name; their rows never change."""
    identity: tuple[int, int] | None
    """Device and number of the file."""


def open_database(path: str, options: Options) -> Database:
    """Open the file, or make it, and bring its schema up to date.

    Raises:
        BackendError: It is no file of ours, of a newer version, or damaged; it was not changed.
        BrokerUnavailable: It cannot be opened, or others keep it locked.
    """
    limit = options.busy_limit.total_seconds()
    try:
        database = sqlite3.connect(
            path,
            timeout=limit,
            isolation_level=None,
            check_same_thread=False,
            factory=Database,
        )
        try:
            _set_up(database, path, options, time.monotonic() + limit)
        except BaseException:
            database.close()
            raise
    except sqlite3.Error as fault:
        raise translated(path, fault) from fault
    return database


def _set_up(database: Database, path: str, options: Options, deadline: float) -> None:
    database.execute("BEGIN")  # others may be making the file: either all of it is seen, or none
    version = _version(database, path)
    database.execute("COMMIT")
    if version < len(_STEPS):
        # These two count for a new file only.
        database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _migrate(database, path)
    _use_wal(database, path, deadline)
    database.execute(f"PRAGMA synchronous = {options.synchronous}")
    log_bytes = _LOG_BYTES[options.synchronous]
    database.execute(f"PRAGMA wal_autocheckpoint = {log_bytes // _PAGE_BYTES}")
    database.execute(f"PRAGMA journal_size_limit = {log_bytes}")
    database.queues = {}
    database.identity = identity_of(path)


def identity_of(path: str) -> tuple[int, int] | None:
    """What tells a file from another one that takes its place; None if it is gone."""
    try:
        found = os.stat(path)  # noqa: PTH116 - as short as the rest
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _version(database: Database, path: str) -> int:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise BackendError(
            f"{path} cannot be used: it is a SQLite file of another program; nothing was changed"
        )
    if version > len(_STEPS):
        raise BackendError(
            f"{path} cannot be used: its schema has version {version}, and this queuey_sync knows"
            f" no later one than {len(_STEPS)}: upgrade it; nothing was changed"
        )
    return int(version)


def _migrate(database: Database, path: str) -> None:
    """Make the steps that are missing, in one transaction; a fault closes it, and so undoes it."""
    database.execute("BEGIN IMMEDIATE")
    # Asked again, now that no other process can be at it.
    for step in _STEPS[_version(database, path) :]:
        for statement in step.split(";"):
            database.execute(statement)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {len(_STEPS)}")
    database.execute("COMMIT")


def _use_wal(database: Database, path: str, deadline: float) -> None:
    """Switch to a write-ahead log; SQLite answers at once, even when others are in the way."""
    mode = ""
    while not mode:
        try:
            (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as fault:
            if not is_busy(fault) or time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY)
    if mode != "wal":
        folder = Path(path).parent
        raise BackendError(
            f"{path} cannot be used: no write-ahead log is possible in {folder}; is that a network"
            " file system?"
        )
