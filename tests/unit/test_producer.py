"""`Producer`: what it declares, publishes and refuses, on the memory backend."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from queuey_sync.backends.base import Inbox
from queuey_sync.backends.memory.backend import MemoryBackend
from queuey_sync.envelope import Envelope
from queuey_sync.errors import (
    ConfigurationError,
    PublishError,
    PublishRefused,
    QueueyError,
    SerializationError,
)
from queuey_sync.jobs import Job
from queuey_sync.producer import Producer
from queuey_sync.queues import QueueSet, queue
from queuey_sync.testing import ManualClock
from tests.support.listening import Deaf


class Shop(QueueSet, prefix="shop"):
    """The set of the producer."""

    ORDERS = queue(prefetch=4)
    MAIL = queue(prefetch=2)
    AUDIT = queue(prefetch=1, max_priority=0)


class Other(QueueSet, prefix="other"):
    """Another set."""

    ORDERS = queue()


class Charge(Job[Shop], queue=Shop.ORDERS, name="shop.Charge"):
    """A job of the set."""

    customer: str
    amount: float = 1.0


class Trace(Job[Shop], queue=Shop.AUDIT, name="shop.Trace"):
    """A job on a queue without levels."""

    n: int


class Foreign(Job[Other], queue=Other.ORDERS, name="other.Foreign"):
    """A job of another set."""

    n: int = 0


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `backend`."""
    return ManualClock()


@pytest.fixture
def backend(clock: ManualClock) -> MemoryBackend:
    """Where the jobs go."""
    return MemoryBackend(clock)


@pytest.fixture
def producer(backend: MemoryBackend) -> Producer[Shop]:
    """What is tested."""
    return Producer(backend, Shop)


def served(backend: MemoryBackend, member: QueueSet) -> list[Envelope]:
    """What a consumer of the queue gets, in order."""
    inbox = Inbox()
    backend.consume([member.config], inbox, Deaf())
    deliveries = [inbox.get_nowait() for _ in range(inbox.qsize())]
    for delivery in deliveries:
        assert delivery is not None
        delivery.ack()
    return [delivery.envelope for delivery in deliveries if delivery]


def nothing_published(backend: MemoryBackend, clock: ManualClock) -> bool:
    """Whether no queue has or ever gets a message."""
    clock.advance("1d")
    return all(backend.pending(name) == 0 for name in backend.queue_names())


def test_declares_the_whole_set(backend: MemoryBackend, producer: Producer[Shop]) -> None:
    """H1: every queue of the set is declared, as configured."""
    assert backend.queue_names() == ["shop.audit", "shop.mail", "shop.orders"]
    assert backend.queue_config("shop.orders") == Shop.ORDERS.config
    assert producer.backend is backend


def test_undeclared_declares_nothing(backend: MemoryBackend) -> None:
    """H1: the undeclared form makes no queue, and publishes all the same."""
    producer = Producer.undeclared(backend, Shop)
    assert backend.queue_names() == []
    assert producer.backend is backend
    producer.enqueue(Charge("ada"))
    assert backend.pending("shop.orders") == 1


def test_enqueue(backend: MemoryBackend, producer: Producer[Shop]) -> None:
    """H1, E1: a fresh envelope of the job is pending, and its id is returned."""
    job_id = producer.enqueue(Charge("ada"), correlation_id="t-1")
    (envelope,) = served(backend, Shop.ORDERS)
    assert job_id == envelope.job_id
    assert ("shop.Charge", "shop.orders") == (envelope.job_type, envelope.queue)
    assert (1, 0, 0) == (envelope.attempt, envelope.deferrals, envelope.priority)
    assert envelope.correlation_id == "t-1"
    assert b'{"customer":"ada","amount":1.0}' == bytes(envelope.payload)
    assert job_id != producer.enqueue(Charge("ada"))


def test_enqueue_after(
    backend: MemoryBackend, producer: Producer[Shop], clock: ManualClock
) -> None:
    """H2: pending when the delay is over and not before, never held, at priority 0."""
    job_id = producer.enqueue_after(Charge("ada"), "30s", correlation_id="t-1")
    clock.advance("29s")
    assert (backend.pending("shop.orders"), backend.deferred("shop.orders")) == (0, 0)
    clock.advance("2s")
    assert (backend.pending("shop.orders"), backend.deferred("shop.orders")) == (1, 0)
    (envelope,) = served(backend, Shop.ORDERS)
    assert (job_id, 0, "t-1") == (envelope.job_id, envelope.priority, envelope.correlation_id)


def test_defer(backend: MemoryBackend, producer: Producer[Shop], clock: ManualClock) -> None:
    """H3: held, then served first at the top level; no deferral and no attempt are counted."""
    first_id = producer.enqueue(Charge("ada"))
    job_id = producer.defer(Charge("grace"), 30, correlation_id="t-1")
    assert (backend.deferred("shop.orders"), backend.pending("shop.orders")) == (1, 1)
    clock.advance("31s")
    assert (backend.deferred("shop.orders"), backend.pending("shop.orders")) == (0, 2)
    late, first = served(backend, Shop.ORDERS)
    assert (job_id, first_id) == (late.job_id, first.job_id)
    assert (10, 0, 1) == (late.priority, late.deferrals, late.attempt)
    assert late.correlation_id == "t-1"


def test_defer_without_levels(
    backend: MemoryBackend, producer: Producer[Shop], clock: ManualClock
) -> None:
    """H3: on a queue without levels a deferred job comes back with priority 0."""
    producer.defer(Trace(1), "30s")
    clock.advance("31s")
    assert [envelope.priority for envelope in served(backend, Shop.AUDIT)] == [0]


def _ways(producer: Producer[Any], job: Any) -> list[Any]:
    return [
        lambda: producer.enqueue(job),
        lambda: producer.enqueue_after(job, "1s"),
        lambda: producer.defer(job, "1s"),
        lambda: producer.enqueue_many([Charge("ada"), job]),
    ]


def test_job_of_another_set_is_refused(
    backend: MemoryBackend, producer: Producer[Shop], clock: ManualClock
) -> None:
    """H4: the error names the job and both sets, and nothing is published."""
    for way in _ways(producer, Foreign()):
        with pytest.raises(ConfigurationError, match=r"`other\.Foreign`.* Other, .* Shop"):
            way()
    assert nothing_published(backend, clock)


@pytest.mark.parametrize("job", [None, "shop.Charge", Charge, {"customer": "ada"}])
def test_what_is_no_job_is_refused(
    backend: MemoryBackend, producer: Producer[Shop], clock: ManualClock, job: object
) -> None:
    """What is not an instance of a job class is an error of its own, and nothing is published."""
    for way in _ways(producer, job):
        with pytest.raises(ConfigurationError, match="job"):
            way()
    assert nothing_published(backend, clock)


@pytest.mark.parametrize(
    "job",
    [
        Charge("ada", float("nan")),
        Charge("ada", float("-inf")),
        Charge("\ud800"),
        Charge(3),  # type: ignore[arg-type]
    ],
    ids=["nan", "infinity", "lone surrogate", "wrong type"],
)
def test_unserialisable_job_is_refused(
    backend: MemoryBackend, producer: Producer[Shop], clock: ManualClock, job: Charge
) -> None:
    """A job that cannot travel is a serialization error, and nothing is published."""
    for way in _ways(producer, job):
        with pytest.raises(SerializationError, match=r"^serialization error: "):
            way()
    assert nothing_published(backend, clock)


def test_unserialisable_correlation_id_is_refused(
    backend: MemoryBackend, producer: Producer[Shop], clock: ManualClock
) -> None:
    """A correlation id that cannot travel is a serialization error too."""
    with pytest.raises(SerializationError):
        producer.enqueue(Charge("ada"), correlation_id="\ud800")
    assert nothing_published(backend, clock)


@pytest.mark.parametrize("delay", [-1, "soon", float("nan"), float("inf"), None, True, 10**30])
def test_bad_delay_is_refused(
    backend: MemoryBackend, producer: Producer[Shop], clock: ManualClock, delay: Any
) -> None:
    """A delay that is none raises before anything is published, and names the argument."""
    for way in (producer.enqueue_after, producer.defer):
        with pytest.raises(ConfigurationError, match=r"^delay: "):
            way(Charge("ada"), delay)
    assert nothing_published(backend, clock)


def test_a_delay_that_the_backend_cannot_hold_is_refused() -> None:
    """A delay over the backend's limit is the caller's error; the limit itself is accepted."""

    class Brief(MemoryBackend):
        @property
        def longest_delay(self) -> timedelta:
            return timedelta(days=1)

    clock = ManualClock()
    backend = Brief(clock)
    producer = Producer(backend, Shop)
    for way in (producer.enqueue_after, producer.defer):
        with pytest.raises(ConfigurationError, match=r"^delay: 86401s is longer than .*\(86400s\)"):
            way(Charge("ada"), 86_401)
    assert nothing_published(backend, clock)
    producer.enqueue_after(Charge("ada"), "1d")
    assert not nothing_published(backend, clock)


@pytest.mark.parametrize("make", [Producer, Producer.undeclared])
def test_a_producer_needs_a_queue_set(backend: MemoryBackend, make: Any) -> None:
    """Anything else is refused when the producer is made, naming the argument."""
    with pytest.raises(ConfigurationError, match=r"^queues: expected a queue set"):
        make(backend, Shop.ORDERS)


def test_enqueue_many(backend: MemoryBackend, producer: Producer[Shop]) -> None:
    """All are published in order, from any iterable, and the ids come in the same order."""
    ids = producer.enqueue_many(Charge(name) for name in ("ada", "grace", "joan"))
    assert ids == [envelope.job_id for envelope in served(backend, Shop.ORDERS)]
    assert producer.enqueue_many([]) == []


def test_enqueue_many_tells_which_failed() -> None:
    """One error tells the fate of every job that was not taken, by its index."""

    class Full(MemoryBackend):
        def publish_many(self, envelopes: Sequence[Envelope]) -> dict[int, QueueyError]:
            refused: dict[int, QueueyError] = {}
            for index, envelope in enumerate(envelopes):
                if index % 2:
                    refused[index] = PublishRefused("nacked")
                else:
                    self.publish(envelope)
            return refused

    backend = Full()
    with pytest.raises(PublishError, match=r"2 of 5 jobs .*nacked") as caught:
        Producer(backend, Shop).enqueue_many([Charge(str(number)) for number in range(5)])
    assert [1, 3] == sorted(caught.value.failures)
    assert all(isinstance(each, PublishRefused) for each in caught.value.failures.values())
    assert backend.pending("shop.orders") == 3
    taken = [caught.value.job_ids[index] for index in (0, 2, 4)]
    inbox = Inbox()
    backend.consume([Shop.ORDERS.config], inbox, Deaf())
    assert taken == [delivery.envelope.job_id for _ in taken if (delivery := inbox.get_nowait())]


def test_enqueue_many_says_which_job_is_wrong(producer: Producer[Shop]) -> None:
    """An error of one job out of many says which one it was."""
    with pytest.raises(SerializationError) as caught:
        producer.enqueue_many([Charge("ada"), Charge("bob"), Charge("eve", float("nan"))])
    assert ["job 2 of those to enqueue"] == caught.value.__notes__
