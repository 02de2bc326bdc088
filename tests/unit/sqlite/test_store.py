"""What a store does with jobs beyond the contract: properties, times, limits, cleaning."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from queuey_sync.backends.sqlite import backend as backend_module
from queuey_sync.backends.sqlite import consumer as consumer_module
from queuey_sync.backends.sqlite import store as sql
from queuey_sync.backends.sqlite.delivery import now_ms
from queuey_sync.backends.sqlite.file import StoreFile
from queuey_sync.backends.sqlite.schema import Database
from queuey_sync.envelope import Envelope
from queuey_sync.errors import BackendError, PublishRefused, PublishUnroutable
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import envelope
from tests.support.waiting import eventually
from tests.unit.sqlite.conftest import QUEUE, Store

SECOND = timedelta(seconds=1)


def taken(store: Store, count: int, *configs: QueueConfig) -> list[Envelope]:
    """The next jobs; they are acked."""
    consuming = store.consume(store.backend(), *configs)
    envelopes = []
    for _ in range(count):
        delivery = consuming.inbox.get(timeout=5)
        assert delivery is not None
        envelopes.append(delivery.envelope)
        delivery.ack()
    consuming.end()
    return envelopes


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (QueueConfig("q", durable=False), "durable 1, and 0 is wanted"),
        (QueueConfig("q", max_priority=None), "max_priority 10, and None is wanted"),
        (QueueConfig("q", message_ttl=SECOND), "message_ttl_ms None, and 1000 is wanted"),
    ],
)
def test_a_queue_with_other_properties(store: Store, config: QueueConfig, complaint: str) -> None:
    """A queue that exists with other properties is refused, and no other is made meanwhile."""
    backend = store.backend()
    with pytest.raises(BackendError, match=f"queue `q` exists with {complaint}"):
        backend.declare([QueueConfig("new"), config])
    assert [("q",)] == store.sql("SELECT name FROM queues")


def test_prefetch_and_retry_are_no_properties(store: Store) -> None:
    """What belongs to a worker may differ between two declarations."""
    store.backend().declare([QueueConfig("q", prefetch=7)])


def test_a_queue_that_does_not_exist(store: Store) -> None:
    """Publishing to an unknown queue is refused, with a delay too; consuming it ends at once."""
    backend = store.backend()
    nowhere = QueueConfig("nowhere")
    calls: list[Callable[[], None]] = [
        lambda: backend.publish(envelope(nowhere)),
        lambda: backend.publish(envelope(nowhere), SECOND),
        lambda: backend.defer(envelope(nowhere), SECOND),
    ]
    for publish in calls:
        with pytest.raises(PublishUnroutable, match="queue `nowhere` does not exist"):
            publish()
    consuming = store.consume(backend, nowhere)
    eventually(lambda: consuming.listener.errors)
    assert "queue `nowhere` does not exist: declare it" in str(consuming.listener.errors[0])


def test_publish_many_takes_what_it_can(store: Store) -> None:
    """Those that cannot be taken are told by index; the others are there once, in order."""
    backend = store.backend()
    nowhere = QueueConfig("nowhere")
    sent = [envelope(QUEUE, 0), envelope(nowhere, 1), envelope(QUEUE, 2)]
    long = Envelope.new("a", QUEUE.full_name, b'"' + b"x" * 2**24 + b'"')
    failures = backend.publish_many([*sent, long])
    assert [1, 3] == list(failures)
    assert isinstance(failures[1], PublishUnroutable)
    assert isinstance(failures[3], PublishRefused)
    assert [sent[0], sent[2]] == taken(store, 2)


def test_a_job_that_is_too_long(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for what is published; a longer copy of what was taken is no reason to stop."""
    backend = store.backend()
    sent = envelope(QUEUE)
    monkeypatch.setattr(backend_module, "_LONGEST_BODY", len(sent.encode()))
    backend.publish(sent)
    with pytest.raises(PublishRefused, match=r"has \d+ bytes, and a store takes \d+ at most"):
        backend.publish(sent.with_correlation_id("one more"))
    consuming = store.consume(backend)
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    delivery.retry(sent.next_attempt().with_correlation_id("one more"), timedelta(0))
    assert consuming.inbox.get(timeout=5) is not None


def test_what_is_due_goes_behind_what_waits(store: Store) -> None:
    """The moment that a held job is moved is when it stands in line, the longest due first."""
    backend = store.backend()
    later, sooner, waiting = (envelope(QUEUE, number) for number in range(3))
    backend.publish(later, timedelta(seconds=1))
    backend.publish(sooner, timedelta(milliseconds=1))
    backend.publish(waiting)
    eventually(lambda: backend.depths([QUEUE])[0].ready == 3)
    assert [waiting, sooner, later] == taken(store, 3)


def test_more_is_due_than_is_moved_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due is moved in several transactions, in order."""
    monkeypatch.setattr(sql, "_AT_ONCE", 3)
    backend = store.backend()
    sent = [envelope(QUEUE, number) for number in range(10)]
    for each in sent:
        backend.publish(each, timedelta(milliseconds=1))
    assert sent == taken(store, 10)


def test_more_waits_than_is_claimed_at_once(store: Store) -> None:
    """An unlimited prefetch gets everything, in several transactions."""
    backend = store.backend()
    sent = [envelope(QUEUE, number) for number in range(1_000)]
    assert {} == backend.publish_many(sent)
    consuming = store.consume(backend, QueueConfig("q", prefetch=0))
    eventually(lambda: consuming.inbox.qsize() == 1_000)


def test_a_queue_knows_when_the_next_one_is_due(store: Store) -> None:
    """The time is that of the first; a delay of thousands of years is shown as the last one."""
    backend = store.backend()
    backend.publish(envelope(QUEUE), timedelta(days=999_999_999))
    (far,) = backend.depths([QUEUE])
    assert far.next_due == datetime(9999, 12, 31, tzinfo=UTC)
    backend.publish(envelope(QUEUE), timedelta(minutes=1))
    (near,) = backend.depths([QUEUE])
    assert near.next_due is not None
    assert timedelta(seconds=50) < near.next_due - datetime.now(UTC) <= timedelta(seconds=61)
    assert (0, 2) == (near.ready, near.held)


SHORT = QueueConfig("short", message_ttl=timedelta(milliseconds=50))


def test_jobs_that_waited_too_long_vanish(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its TTL a job is neither counted nor delivered, and then deleted; no dead letter."""
    monkeypatch.setattr(consumer_module, "_PRUNE", 0)
    backend = store.backend()
    backend.declare([SHORT])
    backend.publish(envelope(SHORT))
    backend.publish(envelope(QUEUE))
    eventually(lambda: backend.depths([SHORT])[0].ready == 0)
    assert [(2,)] == store.sql("SELECT count(*) FROM jobs")
    consuming = store.consume(backend, SHORT)
    eventually(lambda: [(1,)] == store.sql("SELECT count(*) FROM jobs"))
    assert consuming.inbox.empty()
    assert backend.depths([SHORT])[0].dead == 0
    assert backend.depths([QUEUE])[0].ready == 1


def test_what_waited_too_long_is_not_claimed(store: Store) -> None:
    """A job that is not deleted yet, though its TTL is over, is not delivered."""
    backend = store.backend()
    backend.declare([SHORT])
    first, second, last = (envelope(SHORT, number) for number in range(3))
    consuming = store.consume(backend, QueueConfig("short", prefetch=1))
    backend.publish(first)
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    backend.publish(second)
    eventually(lambda: backend.depths([SHORT])[0].ready == 0)
    assert [(2,)] == store.sql("SELECT count(*) FROM jobs")
    delivery.ack()
    backend.publish(last)
    following = consuming.inbox.get(timeout=5)
    assert following is not None
    assert last == following.envelope


def test_the_ttl_counts_from_when_a_job_is_due(store: Store) -> None:
    """What is held does not grow old; what is in hand does not vanish."""
    backend = store.backend()
    backend.declare([SHORT])
    backend.publish(envelope(SHORT), timedelta(milliseconds=200))
    consuming = store.consume(backend, SHORT)
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    [(expires_ms,)] = store.sql("SELECT expires_ms FROM jobs")
    eventually(lambda: now_ms() > expires_ms)
    backend._file.write(lambda db: sql.prune(db, now_ms(), None))
    assert [(1,)] == store.sql("SELECT count(*) FROM jobs")
    delivery.ack()
    consuming.end()
    assert [] == consuming.listener.failed
    assert [] == store.sql("SELECT * FROM jobs")


def test_old_dead_letters_are_deleted_on_request(store: Store) -> None:
    """Without the option they are kept for ever; with it the old ones go."""
    backend = store.backend()
    for number in range(2):
        backend.publish(envelope(QUEUE, number))
        consuming = store.consume(backend)
        delivery = consuming.inbox.get(timeout=5)
        assert delivery is not None
        delivery.dead_letter("bad")
        consuming.end()
    store.sql("UPDATE dead SET died_ms = died_ms - 3600000 WHERE id = 1")
    assert backend.depths([QUEUE])[0].dead == 2
    cleaner = store.backend(keep_dead_letters="30m")
    store.consume(cleaner)
    eventually(lambda: cleaner.depths([QUEUE])[0].dead == 1)


def test_the_file_shrinks_when_a_backlog_is_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that nobody uses go back to the file system, bit by bit, while a worker runs."""
    monkeypatch.setattr(consumer_module, "_PRUNE", 0)
    monkeypatch.setattr(consumer_module, "_CHORES", 0.01)
    monkeypatch.setattr(sql, "_SPARE_PAGES", 100)
    backend = store.backend()
    payload = b'"' + b"x" * 10_000 + b'"'
    backend.publish_many([Envelope.new("a", "q", payload) for _ in range(500)])
    consuming = store.consume(backend, QueueConfig("q", prefetch=0))
    for _ in range(500):
        delivery = consuming.inbox.get(timeout=5)
        assert delivery is not None
        delivery.ack()
    eventually(lambda: store.sql("PRAGMA page_count")[0][0] < 300)
    consuming.end()
    assert [("ok",)] == store.sql("PRAGMA integrity_check")


def test_a_reason_that_cannot_be_encoded(store: Store) -> None:
    """A reason is kept, whatever is in it."""
    backend = store.backend()
    backend.publish(envelope(QUEUE))
    delivery = store.consume(backend).inbox.get(timeout=5)
    assert delivery is not None
    delivery.dead_letter("caf\udce9 \0!")
    assert [("caf? \0!",)] == store.sql("SELECT reason FROM dead")


def test_publishing_wakes_the_worker_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a process nobody waits for the next look at the file."""
    monkeypatch.setattr(consumer_module, "_POLL", 60)
    monkeypatch.setattr(consumer_module, "_CHORES", 60)
    backend = store.backend()
    consuming = store.consume(backend)
    eventually(lambda: backend.depths([QUEUE])[0].consumers == 1)
    for number in range(3):
        backend.publish(envelope(QUEUE, number))
        delivery = consuming.inbox.get(timeout=5)
        assert delivery is not None
        delivery.ack()
    assert {} == backend.publish_many([envelope(QUEUE)])
    assert consuming.inbox.get(timeout=5) is not None


@pytest.mark.parametrize("worked", [False, True])
def test_an_idle_worker_costs_little(
    store: Store, monkeypatch: pytest.MonkeyPatch, worked: bool
) -> None:
    """While nothing happens it looks at the file no more than 25 times a second, and a bit."""
    looks: list[float] = []
    version = StoreFile.version

    def counted(file: StoreFile, db: Database) -> tuple[int, int]:
        looks.append(time.monotonic())
        return version(file, db)

    monkeypatch.setattr(StoreFile, "version", counted)
    backend = store.backend()
    consuming = store.consume(backend, QueueConfig("q", prefetch=1))
    if worked:
        backend.publish(envelope(QUEUE))
        delivery = consuming.inbox.get(timeout=5)
        assert delivery is not None
        delivery.ack()
        eventually(lambda: [] == store.sql("SELECT * FROM jobs"))
    eventually(lambda: store.sql("SELECT * FROM consumers"))
    before = len(looks)
    eventually(lambda: len(looks) >= before + 15)
    assert looks[before + 14] - looks[before] > 14 * 0.04 * 0.8


def test_a_retry_is_in_the_file_when_the_call_returns(store: Store) -> None:
    """Copy and ack are one transaction: at no moment are there both, or neither."""
    backend = store.backend()
    backend.publish(envelope(QUEUE))
    delivery = store.consume(backend).inbox.get(timeout=5)
    assert delivery is not None
    delivery.retry(delivery.envelope.next_attempt(), SECOND)
    assert [(0, 0, 1)] == store.sql(
        "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM leases),"
        " (SELECT count(*) FROM held)"
    )


def test_a_copy_that_cannot_be_placed(store: Store) -> None:
    """A retry to a queue that does not exist leaves the job unsettled, and it can be acked."""
    backend = store.backend()
    backend.publish(envelope(QUEUE))
    consuming = store.consume(backend)
    delivery = consuming.inbox.get(timeout=5)
    assert delivery is not None
    with pytest.raises(PublishUnroutable):
        delivery.retry(envelope(QueueConfig("nowhere")), SECOND)
    assert [(1, 1)] == store.sql(
        "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM leases)"
    )
    delivery.ack()
    consuming.end()
    assert [] == store.sql("SELECT * FROM jobs")
