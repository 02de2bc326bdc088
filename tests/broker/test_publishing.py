"""Tests of publishing and declaring on a real broker: whose fate is whose."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker

from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.backends.rabbitmq.publishing.outbox import Declares
from queuey_sync.errors import BackendError, PublishRefused, PublishUnroutable, UnknownQueue
from queuey_sync.queues import QueueConfig
from tests.conftest import FreshQueues
from tests.support.publishing import SECOND, Looker, MakeBackend, envelope


def test_300_rounds_of_10_publishes_with_one_unroutable(
    backend: RabbitMQBackend, queue: str, looker: Looker
) -> None:
    """Of ten publishes at once exactly the unroutable one fails, every time."""
    rounds, width = 300, 10
    start = threading.Barrier(width)
    failed: list[tuple[int, int]] = []

    def publish(position: int) -> None:
        for number in range(rounds):
            unroutable = number % width == position
            start.wait(30)
            try:
                backend.publish(envelope("no-such-queue" if unroutable else queue))
            except PublishUnroutable:
                failed.append((number, position))

    with ThreadPoolExecutor(width) as threads:
        list(threads.map(publish, range(width)))
    assert [(number, number % width) for number in range(rounds)] == sorted(failed)
    assert rounds * (width - 1) == looker.count(queue)


def test_p7_unroutable(backend: RabbitMQBackend, fresh_queue: FreshQueues) -> None:
    """P7: a queue that does not exist is an error that names it, until it is declared."""
    name = fresh_queue()
    with pytest.raises(PublishUnroutable, match="unroutable") as caught:
        backend.publish(envelope(name))
    assert f"`{name}`" in str(caught.value)
    assert "312 NO_ROUTE" in str(caught.value)
    backend.declare([QueueConfig(name)])
    backend.publish(envelope(name))


def test_batch_with_one_unroutable(backend: RabbitMQBackend, queue: str, looker: Looker) -> None:
    """Of a batch of ten with number 4 unroutable, exactly number 4 is reported."""
    batch = [envelope(queue) for _ in range(10)]
    batch[4] = envelope("no-such-queue")
    failures = backend.publish_many(batch)
    assert [4] == list(failures)
    assert isinstance(failures[4], PublishUnroutable)
    expected = [str(job.job_id) for index, job in enumerate(batch) if index != 4]
    assert expected == looker.message_ids(queue)


def test_batch_with_an_impossible_name(
    backend: RabbitMQBackend, queue: str, looker: Looker
) -> None:
    """A name that AMQP cannot encode fails its own job and no other."""
    failures = backend.publish_many([envelope("x" * 256), envelope(queue)])
    assert [0] == list(failures)
    assert "invalid AMQP name" in str(failures[0])
    assert looker.count(queue) == 1


def test_large_batch(backend: RabbitMQBackend, queue: str, looker: Looker) -> None:
    """Ten windows full of jobs arrive, each once and in order."""
    batch = [envelope(queue) for _ in range(10_000)]
    assert {} == backend.publish_many(batch)
    assert [str(job.job_id) for job in batch] == looker.message_ids(queue)


def test_empty_batch_dials_nothing(make_backend: MakeBackend) -> None:
    """Nothing to publish or declare is nothing to dial for."""
    backend = make_backend("amqp://127.0.0.1:1")
    assert {} == backend.publish_many([])
    backend.declare([])


def test_queue_deleted_between_two_publishes(
    backend: RabbitMQBackend, queue: str, looker: Looker
) -> None:
    """A queue that went away is noticed at the next publish."""
    backend.publish(envelope(queue))
    looker.channel.queue_delete(queue)
    with pytest.raises(PublishUnroutable):
        backend.publish(envelope(queue))


def test_full_queue_refuses(
    backend: RabbitMQBackend, fresh_queue: FreshQueues, looker: Looker
) -> None:
    """A nack is a refusal, other than unroutable, and the backend goes on."""
    full = fresh_queue("full")
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    looker.channel.queue_declare(full, arguments=arguments)
    backend.publish(envelope(full))
    with pytest.raises(PublishRefused, match="nacked") as caught:
        backend.publish(envelope(full))
    assert f"`{full}`" in str(caught.value)


def test_priorities_and_properties_arrive(
    backend: RabbitMQBackend, queue: str, looker: Looker
) -> None:
    """The properties on the wire are those of the envelope, without any expiration."""
    job = envelope(queue).deferred(10)
    backend.publish(job)
    _, properties, body = looker.channel.basic_get(queue, auto_ack=True)
    assert properties is not None
    assert (str(job.job_id), "test.Job", 10, 2, None) == (
        properties.message_id,
        properties.type,
        properties.priority,
        properties.delivery_mode,
        properties.expiration,
    )
    assert {"x-attempt": 1, "x-deferrals": 1} == properties.headers
    assert job.encode() == body


def test_p12_other_arguments(
    backend: RabbitMQBackend, queue: str, make_backend: MakeBackend, amqp_url: str
) -> None:
    """P12: a queue that exists with other levels is an error that names both; all goes on."""
    other = make_backend(amqp_url)
    other.publish(envelope(queue))
    with pytest.raises(BackendError, match="PRECONDITION_FAILED") as caught:
        backend.declare([QueueConfig(queue, max_priority=5)])
    for part in (queue, "x-max-priority", "'5'", "'10'"):
        assert part in str(caught.value)
    backend.publish(envelope(queue))
    other.publish(envelope(queue))
    backend.declare([QueueConfig(queue)])


def test_long_name_creates_nothing(
    backend: RabbitMQBackend, fresh_queue: FreshQueues, looker: Looker
) -> None:
    """Names are checked before anything is created."""
    good = fresh_queue()
    with pytest.raises(BackendError, match="leaves no room for its hold queues"):
        backend.declare([QueueConfig(good), QueueConfig("q" * 236)])
    with pytest.raises(ChannelClosedByBroker):
        looker.count(good)


def test_only_what_landed_is_remembered(
    backend: RabbitMQBackend, fresh_queue: FreshQueues, looker: Looker
) -> None:
    """A refused declaration remembers the queues before it and none after."""
    first, bad, last = fresh_queue("first"), fresh_queue("bad"), fresh_queue("last")
    looker.channel.queue_declare(bad, durable=True)
    with pytest.raises(BackendError, match="PRECONDITION_FAILED"):
        backend.declare([QueueConfig(first), QueueConfig(bad), QueueConfig(last)])
    backend.defer(envelope(first), SECOND)
    for name in (bad, last):
        with pytest.raises(UnknownQueue):
            backend.defer(envelope(name), SECOND)


def test_p14_unknown_and_too_long(
    backend: RabbitMQBackend, fresh_queue: FreshQueues, looker: Looker
) -> None:
    """P14: waiting needs a declared queue and a delay that can be waited; nothing is created."""
    name = fresh_queue()
    for wait in (backend.defer, backend.publish):
        with pytest.raises(UnknownQueue, match=name):
            wait(envelope(name), SECOND)
    backend.declare([QueueConfig(name)])
    with pytest.raises(BackendError, match="longer than a hold queue can wait"):
        backend.defer(envelope(name), timedelta(days=30))
    with pytest.raises(ChannelClosedByBroker):
        looker.count(f"{name}.deferred.1000")
    looker.channel = looker.connection.channel()
    backend.defer(envelope(name), SECOND)
    backend.publish(envelope(name), SECOND)
    assert looker.count(f"{name}.deferred.1000") == 2


def test_hold_queue_deleted_before_the_publish(
    backend: RabbitMQBackend, queue: str, looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hold queue that vanishes after its declaration is declared again, and the job is held."""
    hold = f"{queue}.deferred.1000"
    landed, doomed = Declares.landed, [hold, hold]

    def landed_and_deleted(declares: Declares) -> Any:
        entries = landed(declares)
        if entries and doomed:
            looker.channel.queue_delete(doomed.pop())
        return entries

    monkeypatch.setattr(Declares, "landed", landed_and_deleted)
    backend.defer(envelope(queue), SECOND)
    assert [] == doomed
    assert looker.count(hold) == 1


def test_hold_queue_with_other_arguments(
    backend: RabbitMQBackend, queue: str, looker: Looker
) -> None:
    """A refused hold queue fails its own jobs promptly; other holds and publishes go on."""
    looker.channel.queue_declare(f"{queue}.deferred.1000", arguments={"x-message-ttl": 5})
    with ThreadPoolExecutor(8) as threads:
        bad = [threads.submit(backend.defer, envelope(queue), SECOND) for _ in range(4)]
        good = [threads.submit(backend.defer, envelope(queue), 2 * SECOND) for _ in range(4)]
    for future in bad:
        with pytest.raises(BackendError, match=f"{queue}.deferred.1000.*PRECONDITION_FAILED"):
            future.result()
    assert [None] * 4 == [future.result() for future in good]
    backend.publish(envelope(queue))
    looker.channel.queue_delete(f"{queue}.deferred.1000")
