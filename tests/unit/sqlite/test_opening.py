"""Files that are made, opened, brought up to date or refused."""

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from queuey_sync.backends.sqlite import schema
from queuey_sync.backends.sqlite.backend import SQLiteBackend
from queuey_sync.envelope import Envelope
from queuey_sync.errors import BackendError, BrokerUnavailable, QueueyError
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import envelope
from tests.unit.sqlite.conftest import QUEUE, Store

GOLDEN = Path(__file__).parents[2] / "golden" / "store-1.db"


def fault(path: Path) -> QueueyError:
    """What comes of using this file."""
    backend = SQLiteBackend(f"sqlite:///{path}", busy_timeout="200ms")
    with pytest.raises(QueueyError) as caught:
        backend.publish(envelope(QUEUE))
    with pytest.raises(QueueyError):
        backend.declare([QueueConfig("another")])
    backend.close()
    return caught.value


def test_a_new_file(store: Store) -> None:
    """A new file says whose it is and of which version, and writes ahead."""
    store.backend()
    assert [(schema.APPLICATION_ID,)] == store.sql("PRAGMA application_id")
    assert [(1,)] == store.sql("PRAGMA user_version")
    assert [("wal",)] == store.sql("PRAGMA journal_mode")
    assert [(2,)] == store.sql("PRAGMA auto_vacuum")


def test_looking_makes_no_file(store: Store) -> None:
    """A path that was mistyped is told, and leaves nothing behind."""
    with pytest.raises(BackendError, match=rf"there is no store at {store.path}: the first"):
        store.undeclared().depths([QUEUE])
    assert not store.path.exists()


def test_an_empty_file_is_used(store: Store) -> None:
    """A file that was made empty beforehand, to give it an owner for example, is taken."""
    store.path.touch()
    store.backend().publish(envelope(QUEUE))


@pytest.mark.parametrize(("option", "value"), [("normal", 1), ("full", 2)])
def test_synchronous(store: Store, option: str, value: int) -> None:
    """The option is what the connection is set to."""
    backend = SQLiteBackend(f"sqlite:///{store.path}?synchronous={option}")
    found = backend._file.read(lambda db: db.execute("PRAGMA synchronous").fetchone())
    assert (value,) == found
    backend.close()


def test_many_make_it_at_once(store: Store) -> None:
    """Of many who find no file, each ends up with the same one."""
    backends = [store.undeclared() for _ in range(8)]
    barrier = threading.Barrier(8)
    errors: list[Exception] = []

    def begin(backend: SQLiteBackend) -> None:
        barrier.wait()
        try:
            backend.declare([QUEUE])
            backend.publish(envelope(QUEUE))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=begin, args=(backend,)) for backend in backends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == errors
    assert backends[0].depths([QUEUE])[0].ready == 8


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    """The folder is named, and not made."""
    error = fault(tmp_path / "nowhere" / "jobs.db")
    assert isinstance(error, BrokerUnavailable)
    assert f"the folder {tmp_path / 'nowhere'} does not exist" in str(error)
    assert [] == list(tmp_path.iterdir())


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    """A folder is no file."""
    error = fault(tmp_path)
    assert isinstance(error, BrokerUnavailable)
    assert "it cannot be opened" in str(error)


@pytest.mark.parametrize("content", [b"hello, world\n" * 100, b"\0" * 5000])
def test_no_sqlite_file(tmp_path: Path, content: bytes) -> None:
    """What is no SQLite file is refused, and not changed."""
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    assert "it is no SQLite file; nothing was changed" in str(fault(path))
    assert content == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())


def foreign(path: Path, *statements: str) -> bytes:
    """Make a SQLite file that is not ours, or not quite; returns its bytes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path.read_bytes()


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE jobs (id INTEGER)", "PRAGMA application_id = 7", "PRAGMA user_version = 3"],
)
def test_a_file_of_another_program(tmp_path: Path, statement: str) -> None:
    """A SQLite file of somebody else is refused, and not changed."""
    path = tmp_path / "other.db"
    content = foreign(path, statement)
    error = fault(path)
    assert not isinstance(error, BrokerUnavailable)
    assert "a SQLite file of another program; nothing was changed" in str(error)
    assert content == path.read_bytes()


def test_a_file_of_a_newer_version(tmp_path: Path) -> None:
    """A schema that is too new is refused with both versions, and not changed."""
    path = tmp_path / "newer.db"
    content = foreign(
        path, f"PRAGMA application_id = {schema.APPLICATION_ID}", "PRAGMA user_version = 99"
    )
    error = fault(path)
    assert "its schema has version 99, and this queuey_sync knows no later one than 1" in str(error)
    assert content == path.read_bytes()


def test_a_damaged_file(store: Store) -> None:
    """Damage that is met is named, by whoever meets it, and is not made worse."""
    backend = store.backend()
    assert {} == backend.publish_many([envelope(QUEUE, number) for number in range(500)])
    backend.close()
    content = bytearray(store.path.read_bytes())
    content[4096:] = b"\xaa" * (len(content) - 4096)
    store.path.write_bytes(content)
    error = fault(store.path)
    assert not isinstance(error, BrokerUnavailable)
    assert "it is damaged" in str(error)
    assert bytes(content) == store.path.read_bytes()
    consuming = store.consume(store.undeclared())
    consuming.consumption._thread.join(10)
    assert "it is damaged" in str(consuming.listener.errors)


def test_a_read_only_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that may only be read is refused with a clear error."""
    store.backend().close()

    connect = sqlite3.connect

    def connect_to_read(path: str, **options: object) -> sqlite3.Connection:
        return connect(f"file:{path}?mode=ro", uri=True, **options)  # type: ignore[call-overload, no-any-return]

    # A process of root may write whatever the permissions are.
    monkeypatch.setattr(sqlite3, "connect", connect_to_read)
    error = fault(store.path)
    assert isinstance(error, BrokerUnavailable)
    assert "it may only be read" in str(error)


def test_the_golden_file_of_version_1(store: Store) -> None:
    """A file of version 1 is served: what waited, was held, in dead hands and dead."""
    shutil.copy(GOLDEN, store.path)
    backend = store.undeclared()
    config = QueueConfig("shop.mail")
    backend.declare([config])
    (found,) = backend.depths([config])
    assert (3, 0, 2, 0) == (found.ready, found.held, found.dead, found.consumers)
    consuming = store.consume(backend, config)
    jobs = [consuming.inbox.get(timeout=5) for _ in range(3)]
    assert [b'{"n":0}', b'{"n":1}', b'{"n":2}'] == [
        bytes(job.envelope.payload) for job in jobs if job
    ]
    for job in jobs:
        assert job is not None
        job.ack()
    consuming.end()
    assert [("ok",)] == store.sql("PRAGMA integrity_check")
    assert [("bad input",), ("malformed envelope",)] == store.sql("SELECT reason FROM dead")


def add_a_step(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Make this version of the schema one that has one step more."""
    monkeypatch.setattr(schema, "_STEPS", [*schema._STEPS, step])


def test_an_older_file_is_brought_up_to_date(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that are missing are made, once, and nothing is lost."""
    shutil.copy(GOLDEN, store.path)
    add_a_step(monkeypatch, "ALTER TABLE dead ADD COLUMN seen INTEGER; CREATE TABLE more (x)")
    for _ in range(2):
        (found,) = store.undeclared().depths([QueueConfig("shop.mail")])
        assert (3, 2) == (found.ready, found.dead)
        assert [(2,)] == store.sql("PRAGMA user_version")
    assert [(None,), (None,)] == store.sql("SELECT seen FROM dead")


def test_a_step_that_fails_changes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is made as a whole or not at all."""
    shutil.copy(GOLDEN, store.path)
    add_a_step(monkeypatch, "CREATE TABLE more (x); ALTER TABLE nowhere ADD COLUMN y")
    with pytest.raises(BackendError, match="no such table: nowhere"):
        store.undeclared().depths([])
    assert [(1,)] == store.sql("PRAGMA user_version")
    assert [] == store.sql("SELECT 1 FROM sqlite_master WHERE name = 'more'")


def test_a_half_made_file_is_finished(store: Store) -> None:
    """Who dies between making the tables and switching the journal leaves a usable file."""
    foreign(store.path, *_STATEMENTS_OF_VERSION_1)
    store.backend().publish(Envelope.new("a", QUEUE.full_name, b"{}"))
    assert [("wal",)] == store.sql("PRAGMA journal_mode")


_STATEMENTS_OF_VERSION_1 = [
    *schema._STEPS[0].split(";"),
    f"PRAGMA application_id = {schema.APPLICATION_ID}",
    "PRAGMA user_version = 1",
]
