"""Files that are locked, full, taken away or not there, for who publishes and who consumes."""

import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from queuey_sync.backends.sqlite import consumer as consumer_module
from queuey_sync.backends.sqlite.backend import SQLiteBackend
from queuey_sync.backends.sqlite.schema import Database
from queuey_sync.errors import BrokerUnavailable, ConsumerStopped, PublishRefused, SettleError
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import envelope
from tests.support.waiting import eventually
from tests.unit.sqlite.conftest import QUEUE, Store


def test_a_locked_file_is_waited_for(store: Store, locked: Callable[[], None]) -> None:
    """Others may write meanwhile; after busy_timeout it is a clear error, and nothing is there."""
    backend = store.backend(busy_timeout="300ms")
    locked()
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match="stayed locked by others for longer than"):
        backend.publish(envelope(QUEUE))
    assert 0.25 < time.monotonic() - began < 3
    failures = backend.publish_many([envelope(QUEUE)] * 2)
    assert [BrokerUnavailable] * 2 == [type(error) for error in failures.values()]
    assert backend.depths([QUEUE])[0].ready == 0


def test_a_lock_that_ends_in_time(store: Store) -> None:
    """A publish that had to wait for others is taken."""
    backend = store.backend()
    other = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.2, lambda: other.execute("COMMIT")).start()
    backend.publish(envelope(QUEUE))
    other.close()
    assert backend.depths([QUEUE])[0].ready == 1


def test_a_worker_on_a_locked_file_ends(store: Store, locked: Callable[[], None]) -> None:
    """It says why; what it has acked is committed at its close if that is possible by then."""
    backend = store.backend(busy_timeout="300ms")
    backend.publish(envelope(QUEUE))
    consuming = store.consume(backend)
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    locked()
    delivery.ack()
    eventually(lambda: consuming.listener.errors)
    (error,) = consuming.listener.errors
    assert isinstance(error, ConsumerStopped)
    assert isinstance(error.__cause__, BrokerUnavailable)
    consuming.end()
    ((failed, cause),) = consuming.listener.failed
    assert delivery is failed
    assert isinstance(cause, BrokerUnavailable)


def test_a_worker_that_cannot_join(store: Store, locked: Callable[[], None]) -> None:
    """A file that stays locked is a failure to start, and leaves no sign of life behind."""
    backend = store.backend(busy_timeout="300ms")
    locked()
    consuming = store.consume(backend)
    eventually(lambda: consuming.listener.errors)
    assert isinstance(consuming.listener.errors[0], BrokerUnavailable)
    consuming.end()
    assert [] == list(store.path.parent.glob("*-worker-*"))


def test_acks_survive_a_fault_that_passes(store: Store) -> None:
    """What could not be committed at once is committed at the close."""
    backend = store.backend(busy_timeout="300ms")
    backend.publish(envelope(QUEUE))
    consuming = store.consume(backend)
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    delivery.ack()
    eventually(lambda: consuming.listener.errors)
    other.close()
    consuming.end()
    assert [] == consuming.listener.failed
    assert [] == store.sql("SELECT * FROM jobs")


def test_a_close_does_not_wait_for_ever(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the file stays locked an ack is told as failed; the job is found again afterwards."""
    monkeypatch.setattr(consumer_module, "_CLOSE_MARGIN", -29.8)
    backend = store.backend(busy_timeout="30s")
    backend.publish(envelope(QUEUE))
    consuming = store.consume(backend)
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    delivery.ack()

    def writing() -> bool:
        return bool(consuming.consumption._writing.accepted())

    eventually(writing)
    began = time.monotonic()
    consuming.end()
    assert time.monotonic() - began < 10
    ((failed, error),) = consuming.listener.failed
    assert delivery is failed
    assert "did not answer in time" in str(error)
    with pytest.raises(SettleError):
        delivery.ack()
    other.close()
    consuming.consumption._thread.join(40)
    (found,) = store.backend().depths([QUEUE])
    assert found.consumers == 0


def test_a_worker_that_could_not_say_goodbye(store: Store) -> None:
    """What it had in hand waits again as soon as somebody can look."""
    backend = store.backend(busy_timeout="300ms")
    backend.publish(envelope(QUEUE))
    consuming = store.consume(backend)
    assert consuming.inbox.get(timeout=5) is not None
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    consuming.end()
    other.close()
    (found,) = store.backend().depths([QUEUE])
    assert (1, 0) == (found.ready, found.consumers)
    assert [] == list(store.path.parent.glob("*-worker-*"))


def fill(backend: SQLiteBackend) -> None:
    """Let the file grow no more, as on a full disk."""

    def operation(db: Database) -> None:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    backend._file.read(operation)


def publish_until_refused(backend: SQLiteBackend) -> int:
    """How many jobs were taken until one was refused for want of room."""
    for number in range(1_000):
        failures = backend.publish_many([envelope(QUEUE, number)])
        if failures:
            assert isinstance(failures[0], PublishRefused)
            return number
    raise AssertionError("none was refused")


def test_a_full_disk(store: Store) -> None:
    """A job for which there is no room is refused; what was confirmed is there and undamaged."""
    backend = store.backend()
    fill(backend)
    count = publish_until_refused(backend)
    assert count
    fill(backend)
    with pytest.raises(PublishRefused, match="is full, so nothing was written"):
        backend.publish(envelope(QUEUE))
    assert [("ok",)] == store.sql("PRAGMA integrity_check")
    assert backend.depths([QUEUE])[0].ready == count
    fill(backend)
    failures = backend.publish_many([envelope(QUEUE, number) for number in range(100)])
    assert 100 == len(failures)
    assert backend.depths([QUEUE])[0].ready == count


def test_a_retry_on_a_full_disk(store: Store) -> None:
    """The copy cannot be placed, so the job stays unsettled; it can be settled otherwise."""
    backend = store.backend()
    backend.publish(envelope(QUEUE))
    consuming = store.consume(backend)
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    long = delivery.envelope.with_correlation_id("x" * 100_000)
    fill(backend)
    with pytest.raises(PublishRefused):
        delivery.retry(long, timedelta(0))
    delivery.retry(delivery.envelope.next_attempt(), timedelta(0))
    assert consuming.inbox.get(timeout=5) is not None


def take_away(store: Store, how: str) -> None:
    """Give the file another name while it is in use."""
    for path in store.path.parent.glob("jobs.db*"):
        if "-worker-" not in path.name:
            path.rename(path.with_name(f"old-{path.name}"))
    if how == "replaced":
        other = SQLiteBackend(f"sqlite:///{store.path}")
        other.declare([QUEUE])
        other.close()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_publisher_whose_file_is_taken_away(store: Store, how: str) -> None:
    """Jobs go into a file that has no name any more for a second at most; then into a new one."""
    backend = store.backend()
    take_away(store, how)

    def noticed() -> bool:
        try:
            backend.publish(envelope(QUEUE))
        except BrokerUnavailable as error:
            return "was removed or replaced while it was in use" in str(error)
        return False

    eventually(noticed, 3)
    backend.publish(envelope(QUEUE))
    assert [(1,)] == store.sql("SELECT count(*) FROM jobs")


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_worker_whose_file_is_taken_away(store: Store, how: str) -> None:
    """It ends, since it would wait for ever."""
    consuming = store.consume(store.backend())
    eventually(lambda: store.sql("SELECT 1 FROM consumers"))
    take_away(store, how)
    eventually(lambda: consuming.listener.errors)
    (error,) = consuming.listener.errors
    assert "was removed or replaced while it was in use" in str(error.__cause__)


def test_a_worker_whose_file_cannot_be_opened(store: Store) -> None:
    """That it could not start is told as it is; a stop then wakes the takers all the same."""
    backend = SQLiteBackend(f"sqlite:///{store.path.parent}/nowhere/jobs.db")
    consuming = store.consume(backend, QueueConfig("q"))
    eventually(lambda: consuming.listener.errors)
    assert isinstance(consuming.listener.errors[0], BrokerUnavailable)
    consuming.consumption.stop(2)
    assert [None, None] == [consuming.inbox.get(timeout=1) for _ in range(2)]
    consuming.consumption.close()
    backend.close()
