"""The RabbitMQ backend as the broker sees it: queues, properties, headers, real time.

What every backend must do is in the contract suite, which runs on this one too.
"""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pika
import pytest

from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.envelope import Envelope
from queuey_sync.errors import PublishUnroutable
from queuey_sync.queues import QueueConfig
from tests.conftest import FreshQueues
from tests.contract.adapters import RabbitMQAdapter, envelope
from tests.support.waiting import eventually


def seconds(count: float) -> timedelta:
    """That many seconds."""
    return timedelta(seconds=count)


@pytest.fixture
def adapter(amqp_url: str, fresh_queue: FreshQueues) -> Iterator[RabbitMQAdapter]:
    """The backend, and a way to look behind it."""
    adapter = RabbitMQAdapter(amqp_url, fresh_queue)
    yield adapter
    adapter.close()


@pytest.fixture
def queue(adapter: RabbitMQAdapter) -> QueueConfig:
    """A declared, empty queue."""
    return adapter.queue()


@pytest.mark.parametrize("durable", [True, False])
def test_declare_makes_both_queues(
    adapter: RabbitMQAdapter, fresh_queue: FreshQueues, amqp_url: str, durable: bool
) -> None:
    """P1: the queue and its dead-letter queue exist and are empty; the latter is always durable."""
    config = QueueConfig(fresh_queue(), durable=durable)
    adapter.backend.declare([config])
    adapter.backend.declare([config])
    adapter.another_backend().declare([config])
    assert adapter.look(config.full_name) == 0
    assert adapter.look(f"{config.full_name}.dead") == 0
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare(f"{config.full_name}.dead", durable=True)
        arguments = {"x-max-priority": 10}
        channel.queue_declare(config.full_name, durable=durable, arguments=arguments)


def test_retry_waits_in_a_hold_queue(adapter: RabbitMQAdapter, queue: QueueConfig) -> None:
    """P2: a retry after 500 ms waits in the 1000 ms queue, and returns after 0.9 s or more."""
    sent = envelope(queue)
    adapter.backend.publish(sent)
    consumer = adapter.consume(queue)
    retried_at = time.monotonic()
    consumer.take().retry(sent.next_attempt(), seconds(0.5))
    assert adapter.look(f"{queue.full_name}.deferred.1000") == 1
    again = consumer.take().envelope
    assert 0.9 <= time.monotonic() - retried_at < 2.0
    assert (sent.job_id, 2) == (again.job_id, again.attempt)


@pytest.mark.slow
def test_a_long_retry_holds_up_no_short_one(adapter: RabbitMQAdapter, queue: QueueConfig) -> None:
    """P3: a 6 s retry and then a 1 s retry: the second returns first, both at their time."""
    long, short = envelope(queue, 1), envelope(queue, 2)
    adapter.backend.publish_many([long, short])
    consumer = adapter.consume(queue)
    started = time.monotonic()
    consumer.take().retry(long.next_attempt(), seconds(6))
    consumer.take().retry(short.next_attempt(), seconds(1))
    assert [short.next_attempt()] == consumer.take_envelopes(1)
    assert 0.98 <= time.monotonic() - started < 4
    assert [long.next_attempt()] == consumer.take_envelopes(1)
    assert time.monotonic() - started >= 5.9


def test_retry_and_deferral_share_a_hold_queue(
    adapter: RabbitMQAdapter, queue: QueueConfig
) -> None:
    """P4: a retry and a deferral of 1 s wait in one queue; back on theirs the deferral is first."""
    first, second = envelope(queue, 1), envelope(queue, 2)
    adapter.backend.publish_many([first, second])
    consumer = adapter.consume(queue)
    retried, deferred = consumer.take(), consumer.take()
    consumer.consumption.stop(0)
    retried.retry(first.next_attempt(), seconds(1))
    deferred.defer(second.deferred(10), seconds(1))
    consumer.consumption.close()
    assert adapter.look(f"{queue.full_name}.deferred.1000") == 2
    eventually(lambda: adapter.ready(queue.full_name) == 2)
    assert [second.deferred(10), first.next_attempt()] == adapter.consume(queue).take_envelopes(2)


def test_steps_of_retries_and_deferrals(amqp_url: str, fresh_queue: FreshQueues) -> None:
    """P4: with steps of 5 s and 1 s a delay of 1.2 s lands in the 5000 and 2000 ms queues."""
    adapter = RabbitMQAdapter(amqp_url, fresh_queue, retry_granularity="5s")
    queue = adapter.queue()
    adapter.backend.publish(envelope(queue), seconds(1.2))
    adapter.backend.defer(envelope(queue), seconds(1.2))
    assert adapter.look(f"{queue.full_name}.deferred.5000") == 1
    assert adapter.look(f"{queue.full_name}.deferred.2000") == 1
    adapter.close()


@pytest.mark.slow
def test_deferral_overtakes_and_its_hold_queue_goes(
    adapter: RabbitMQAdapter, queue: QueueConfig
) -> None:
    """P5: a deferral at level 10 is served before the two that wait; its hold queue expires."""
    waiting = [envelope(queue, 1), envelope(queue, 2)]
    late = envelope(queue, 3).deferred(10)
    adapter.backend.publish_many(waiting)
    deferred_at = time.monotonic()
    adapter.backend.defer(late, seconds(1))
    eventually(lambda: adapter.ready(queue.full_name) == 3)
    assert [late, *waiting] == adapter.consume(queue).take_envelopes(3)
    # Looking counts as use and keeps the queue alive: there is one look, and nothing to poll.
    time.sleep(max(0.0, deferred_at + 3.5 - time.monotonic()))
    assert adapter.look(f"{queue.full_name}.deferred.1000") is None


def test_dead_letter_headers(adapter: RabbitMQAdapter, queue: QueueConfig) -> None:
    """P6: the dead letter is the very body, and its headers say why, whence and after how many."""
    sent = envelope(queue).next_attempt().next_attempt()
    adapter.backend.publish(sent)
    consumer = adapter.consume(queue)
    consumer.take().dead_letter("bad input")
    consumer.end()
    assert adapter.look(queue.full_name) == 0
    properties, body = one_of(adapter, f"{queue.full_name}.dead")
    assert sent.encode() == body
    assert sent == Envelope.decode(body)
    headers = properties.headers or {}
    assert headers["x-death-reason"] == "bad input"
    assert headers["x-original-queue"] == queue.full_name
    assert headers["x-attempts"] == 3
    assert (2, None) == (properties.delivery_mode, properties.expiration)


@pytest.mark.parametrize("frame_max", [131_072, 4_096])
def test_long_reasons_are_cut(amqp_url: str, fresh_queue: FreshQueues, frame_max: int) -> None:
    """A reason that no header table can hold is cut, at a whole character; the job is kept.

    4096 bytes are the least that a broker or a client may set for a frame.
    """
    adapter = RabbitMQAdapter(f"{amqp_url}?frame_max={frame_max}", fresh_queue, publish_timeout=2)
    queue = adapter.queue()
    adapter.backend.publish(envelope(queue))
    consumer = adapter.consume(queue)
    consumer.take().dead_letter("é" * 200_000)
    consumer.end()
    ((_, reason),) = adapter.dead(queue.full_name)
    adapter.close()
    assert len(reason) > 100
    assert set(reason) <= {"é", "…"}


def test_dead_letter_queue_gone(adapter: RabbitMQAdapter, queue: QueueConfig) -> None:
    """P9: without its dead-letter queue a job comes back, and the error names that queue."""
    adapter.backend.publish(envelope(queue))
    consumer = adapter.consume(queue)
    delivery = consumer.take()
    adapter.delete(f"{queue.full_name}.dead")
    with pytest.raises(PublishUnroutable, match=rf"{queue.full_name}\.dead"):
        delivery.dead_letter("bad input")
    consumer.end()
    eventually(lambda: adapter.ready(queue.full_name) == 1)


def test_hold_queue_with_other_arguments(
    adapter: RabbitMQAdapter, queue: QueueConfig, amqp_url: str
) -> None:
    """Schedule before ack: a hold queue made otherwise leaves the delivery unsettled."""
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        connection.channel().queue_declare(f"{queue.full_name}.deferred.1000", durable=True)
    adapter.backend.publish(envelope(queue))
    delivery = adapter.consume(queue).take()
    with pytest.raises(Exception, match="PRECONDITION_FAILED"):
        delivery.retry(delivery.envelope.next_attempt(), seconds(1))
    delivery.retry(delivery.envelope.next_attempt(), seconds(2))
    assert adapter.look(f"{queue.full_name}.deferred.2000") == 1


def test_malformed_body_is_kept_verbatim(adapter: RabbitMQAdapter, queue: QueueConfig) -> None:
    """P11: exactly the bytes, with where they came from and why, and nothing that was not there."""
    adapter.publish_raw(queue.full_name, b"{ broken ]")
    good = envelope(queue)
    adapter.backend.publish(good)
    consumer = adapter.consume(queue)
    consumer.take().bury()
    assert [good] == consumer.take_envelopes(1)
    consumer.end()
    assert consumer.listener.failed == []
    properties, body = one_of(adapter, f"{queue.full_name}.dead")
    assert body == b"{ broken ]"
    headers = {"x-death-reason": "malformed envelope", "x-original-queue": queue.full_name}
    assert properties.headers == headers
    assert (2, None, None) == (
        properties.delivery_mode,
        properties.message_id,
        properties.content_type,
    )


class _Utf8Lie(str):
    """Text whose bytes on the wire are not UTF-8."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"\xff\xfe"


@pytest.mark.parametrize(
    "properties",
    [
        {"content_type": "text/plain"},
        {},
        {"headers": {"x-attempt": "three"}},
        {"headers": {"x-attempt": -1, "x-deferrals": 2**40}},
        {"headers": {"nested": {"table": {"of": ["lists", {"and": "tables"}]}}}},
        {"headers": {"not-utf8": _Utf8Lie("x")}},
        {"message_id": "x" * 255, "priority": 255, "expiration": "60000"},
    ],
    ids=["content type", "none", "text", "numbers", "nested", "not UTF-8", "long id"],
)
def test_foreign_properties_do_no_harm(
    adapter: RabbitMQAdapter, queue: QueueConfig, amqp_url: str, properties: dict[str, Any]
) -> None:
    """Report 19: whatever properties a message has, its body is what counts."""
    sent = envelope(queue)
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        connection.channel().basic_publish(
            "", queue.full_name, sent.encode(), pika.BasicProperties(**properties)
        )
    consumer = adapter.consume(queue)
    assert [sent] == consumer.take_envelopes(1)
    consumer.end()
    assert consumer.listener.errors == []
    assert adapter.look(queue.full_name) == 0


def test_a_copy_carries_nothing_of_the_broker(adapter: RabbitMQAdapter, queue: QueueConfig) -> None:
    """Report 20: after a hold queue a job is placed again without the broker's headers."""
    sent = envelope(queue).with_correlation_id("t-1")
    adapter.backend.publish(sent)
    consumer = adapter.consume(queue)
    second = sent.next_attempt()
    consumer.take().retry(second, seconds(1))
    delivery = consumer.take()
    delivery.retry(second.next_attempt(), seconds(2))
    properties, body = one_of(adapter, f"{queue.full_name}.deferred.2000")
    assert properties.headers == {"x-attempt": 3, "x-deferrals": 0}
    assert (2, 0, None) == (properties.delivery_mode, properties.priority, properties.expiration)
    assert second.next_attempt() == Envelope.decode(body)


def test_deferral_outlives_the_backend(adapter: RabbitMQAdapter, queue: QueueConfig) -> None:
    """P15: a deferral of 2 s, and the backend closed at once: it arrives at its time."""
    sent = envelope(queue)
    adapter.backend.publish(sent)
    consumer = adapter.consume(queue)
    deferred_at = time.monotonic()
    consumer.take().defer(sent.deferred(10), seconds(2))
    consumer.end()
    adapter.backend.close()
    assert adapter.look(queue.full_name) == 0
    eventually(lambda: adapter.look(queue.full_name) == 1)
    assert time.monotonic() - deferred_at >= 1.98
    properties, body = one_of(adapter, queue.full_name)
    assert sent.deferred(10) == Envelope.decode(body)
    headers = properties.headers or {}
    assert (10, 1, 1) == (properties.priority, headers["x-deferrals"], headers["x-attempt"])


def test_without_dead_letter_queues(
    amqp_url: str, fresh_queue: FreshQueues, caplog: pytest.LogCaptureFixture
) -> None:
    """With dead-letter queues off, jobs and malformed bodies are rejected, logged and gone."""
    adapter = RabbitMQAdapter(amqp_url, fresh_queue, declare_dead_letter_queues=False)
    queue = adapter.queue()
    adapter.backend.publish(envelope(queue))
    adapter.publish_raw(queue.full_name, b"{ broken ]")
    consumer = adapter.consume(queue)
    consumer.take().dead_letter("bad input")
    consumer.take().bury()
    consumer.end()
    assert adapter.look(queue.full_name) == 0
    assert adapter.look(f"{queue.full_name}.dead") is None
    assert ["WARNING"] == [each.levelname for each in caplog.records if "bad input" in each.message]
    adapter.close()


def test_nothing_is_dialled_before_use() -> None:
    """A backend is made without a broker: nothing is dialled before it is used."""
    backend = RabbitMQBackend("amqp://localhost:1/")
    assert not backend.is_connected
    backend.close()
    assert backend.is_closed()


def one_of(adapter: RabbitMQAdapter, queue: str) -> tuple[pika.BasicProperties, bytes]:
    """Take one message off a queue."""
    message = adapter.get(queue)
    assert message is not None
    return message
