"""Who has which job, and what becomes of it when its worker is gone, or only looks so."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queuey_sync.backends.base import Delivery
from queuey_sync.backends.sqlite import consumer as consumer_module
from queuey_sync.backends.sqlite.presence import monotonic_ms
from queuey_sync.backends.sqlite.store import ConsumerRow
from queuey_sync.errors import ConsumerStopped, SettleError
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import SETTLE, envelope
from tests.support.waiting import eventually
from tests.unit.sqlite.conftest import QUEUE, Consuming, Store


def busy(store: Store) -> tuple[Consuming, Delivery]:
    """A consumption that has a job in hand."""
    backend = store.backend()
    backend.publish(envelope(QUEUE))
    consuming = store.consume(backend)
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    return consuming, delivery


def expire(store: Store) -> None:
    """Let all leases end, as if their workers had stood still."""
    store.sql("UPDATE consumers SET lease_end_ms = 1")


def descriptors() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def signs(store: Store) -> list[Path]:
    """The files that show who is alive."""
    return sorted(store.path.parent.glob("*-worker-*"))


def add_a_dead_worker(store: Store, token: str, lease_end_ms: int) -> None:
    """Enter a worker that has the only job in hand, and does not run."""
    store.sql(
        "INSERT INTO consumers (id, token, lease_ms, lease_end_ms) VALUES (77, ?, 30000, ?)",
        token,
        lease_end_ms,
    )
    store.sql("INSERT INTO consumed VALUES (77, 1)")
    store.sql("INSERT INTO leases SELECT id, 77 FROM jobs")


def test_a_worker_that_died_gives_back_at_once(store: Store) -> None:
    """A sign that nobody holds any more is taken down, long before the lease ends."""
    store.backend().publish(envelope(QUEUE))
    sign = Path(f"{store.path}-worker-1-x")
    sign.touch()
    add_a_dead_worker(store, "1-x", monotonic_ms() + 29_000)
    assert store.consume(store.backend()).inbox.get(timeout=5) is not None
    assert not sign.exists()
    assert [] == store.sql("SELECT * FROM consumed WHERE consumer = 77")


def test_looking_counts_no_dead_worker(store: Store) -> None:
    """What a dead worker had waits again, for whoever looks."""
    backend = store.backend()
    backend.publish(envelope(QUEUE))
    Path(f"{store.path}-worker-1-x").touch()
    add_a_dead_worker(store, "1-x", monotonic_ms() + 29_000)
    (found,) = backend.depths([QUEUE])
    assert (1, 0) == (found.ready, found.consumers)


def test_a_worker_without_a_sign_keeps_its_lease(store: Store) -> None:
    """When somebody has tidied up the folder, the leases alone tell who is alive."""
    consuming, delivery = busy(store)
    for sign in signs(store):
        sign.unlink()
    (found,) = store.backend().depths([QUEUE])
    assert (0, 1) == (found.ready, found.consumers)
    expire(store)
    (found,) = store.backend().depths([QUEUE])
    assert (1, 0) == (found.ready, found.consumers)
    delivery.ack()
    eventually(lambda: consuming.listener.errors)


@pytest.mark.parametrize(
    ("lease_end_ms", "over"), [(1_000, True), (1_001, False), (31_000, False), (31_001, True)]
)
def test_when_a_lease_is_over(lease_end_ms: int, over: bool) -> None:
    """At its end; and if it ends later than any lease can, for it is of an earlier boot."""
    row = ConsumerRow(1, "", 30_000, lease_end_ms)
    assert over == row.is_over(now_ms=1_000)


@pytest.mark.parametrize("call", ["retry", "defer", "dead_letter"])
def test_a_lost_lease_is_told_to_who_settles(store: Store, call: str) -> None:
    """What would place a copy raises, and places none: the job is somebody else's."""
    consuming, delivery = busy(store)
    expire(store)
    assert store.backend().depths([QUEUE])[0].ready == 1
    with pytest.raises(SettleError, match="the lease ended while the job ran"):
        SETTLE[call](delivery)
    (found,) = store.backend().depths([QUEUE])
    assert (1, 0, 0) == (found.ready, found.held, found.dead)
    consuming.end()
    assert [] == consuming.listener.failed


@pytest.mark.parametrize("call", ["ack", "release"])
def test_a_lost_lease_is_told_to_the_listener(store: Store, call: str) -> None:
    """What was accepted before is reported, once, and the consumption ends."""
    consuming, delivery = busy(store)
    expire(store)
    assert store.backend().depths([QUEUE])[0].ready == 1
    SETTLE[call](delivery)
    eventually(lambda: consuming.listener.errors)
    consuming.end()
    ((failed, error),) = consuming.listener.failed
    assert delivery is failed
    assert isinstance(error, SettleError)
    (end,) = consuming.listener.errors
    assert isinstance(end, ConsumerStopped)
    assert "the lease ended" in str(end.__cause__)
    assert store.backend().depths([QUEUE])[0].ready == 1


def test_an_idle_worker_notices_a_lost_lease(store: Store) -> None:
    """Without anything to settle it is noticed when the lease is to be renewed."""
    consuming = store.consume(store.backend(lease="1s"))
    eventually(lambda: store.sql("SELECT 1 FROM consumers"))
    store.sql("DELETE FROM consumers")
    eventually(lambda: consuming.listener.errors)


def test_a_lease_is_renewed(store: Store) -> None:
    """A job may take much longer than the lease."""
    backend = store.backend(lease="1s")
    backend.publish(envelope(QUEUE))
    consuming = store.consume(backend)
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    [(end,)] = store.sql("SELECT lease_end_ms FROM consumers")
    eventually(lambda: monotonic_ms() > end + 500)
    assert store.backend().depths([QUEUE])[0].ready == 0
    delivery.ack()
    consuming.end()
    assert [] == consuming.listener.failed
    assert [] == consuming.listener.errors


def test_nothing_is_left_of_a_closed_consumption(store: Store) -> None:
    """Its lease, its sign and its file descriptor go; what it had in hand waits again."""
    before = descriptors()
    consuming, _ = busy(store)
    assert len(signs(store)) == 1
    consuming.end()
    for table in ("consumers", "consumed", "leases"):
        assert [] == store.sql(f"SELECT * FROM {table}")
    assert [] == signs(store)
    store.close()
    assert before == descriptors()


def test_a_consumer_is_never_mistaken_for_a_later_one(store: Store) -> None:
    """An id is used once, so that a late settlement meets no stranger's lease."""
    first, _ = busy(store)
    before = first.consumption._id
    first.end()
    second, _ = busy(store)
    assert before != second.consumption._id


def test_a_place_that_is_freed_after_a_look_is_filled_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the file while all places are taken says nothing of the queue."""
    monkeypatch.setattr(consumer_module, "_CHORES", 3600.0)  # or the next ones would look again
    backend = store.backend()
    backend.publish_many([envelope(QUEUE, number) for number in range(2)])
    consuming = store.consume(backend, QueueConfig("q", prefetch=1))
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    write = backend._file.write

    def write_and_look(operation: Callable[..., Any]) -> Any:
        """Between the commit of the copy and the word that its place is free, there is a look."""
        result = write(operation)
        if threading.current_thread() is threading.main_thread():
            looked = threading.Event()
            consuming.consumption.survey(lambda _: looked.set())
            assert looked.wait(5)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(backend._file, "write", write_and_look)
        delivery.dead_letter("no")
    assert consuming.inbox.get(timeout=5) is not None
