"""Faults that users met elsewhere, played on a whole worker: reports 1, 19, 20, 26 and 27."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from queuey_sync import (
    BackendError,
    JobContext,
    Producer,
    PublishError,
    PublishRefused,
    PublishUnroutable,
    Retryable,
    RetryPolicy,
)
from queuey_sync.envelope import Envelope
from tests.conftest import FreshQueues
from tests.contract.adapters import MALFORMED, RabbitMQAdapter, envelope
from tests.support.waiting import eventually
from tests.worker.shop import Bench, Script


@pytest.fixture
def adapter(amqp_url: str, fresh_queue: FreshQueues) -> Iterator[RabbitMQAdapter]:
    """RabbitMQ with short steps, and a way to look behind the backend."""
    adapter = RabbitMQAdapter(
        amqp_url, fresh_queue, retry_granularity="50ms", deferred_granularity="50ms"
    )
    yield adapter
    adapter.close()


@pytest.fixture
def bench(adapter: RabbitMQAdapter, fresh_queue: FreshQueues) -> Bench:
    """The shop on it."""
    return Bench(adapter, fresh_queue.prefix)


@pytest.fixture
def channel(amqp_url: str) -> Iterator[BlockingChannel]:
    """A channel of somebody who knows nothing of this library."""
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def charge(
    queue: str, job_type: str = "shop.Charge", payload: bytes = b'{"customer":"ada"}'
) -> bytes:
    """The body of a job."""
    return Envelope.new(job_type, queue, payload).encode()


# Report 1


def test_acks_right_before_the_close(adapter: RabbitMQAdapter) -> None:
    """Report 1: acks of several threads are delivered, however soon the connection closes then."""
    queue = adapter.queue()
    with ThreadPoolExecutor(3) as threads:
        for _ in range(50):
            adapter.backend.publish_many([envelope(queue, number) for number in range(3)])
            consumer = adapter.consume(queue)
            deliveries = [consumer.take() for _ in range(3)]
            consumer.consumption.stop(0)
            list(threads.map(lambda delivery: delivery.ack(), deliveries))
            consumer.consumption.close()
            assert [] == consumer.listener.failed
            assert 0 == adapter.ready(queue.full_name)


# Report 19

_PROPERTIES = [
    pika.BasicProperties(),
    pika.BasicProperties(content_type="text/plain", content_encoding="gzip"),
    pika.BasicProperties(headers={"trace": b"\xff\xfe", "nested": {"table": ["of", {"lists": 1}]}}),
    pika.BasicProperties(headers={"x-attempt": "three"}),
    pika.BasicProperties(headers={"x-attempt": -1, "x-deferrals": 2**40}, priority=255),
]


def _bad_bodies(queue: str) -> dict[bytes, str]:
    """Bodies that no worker can run, and what their reasons begin with."""
    whole = json.loads(charge(queue))
    without_type = json.dumps({key: whole[key] for key in whole if key != "job_type"}).encode()
    malformed = [
        *(b"", b"{", b"\xff\xfe\x00", b"null", b"[]", b"7", without_type),
        json.dumps("x" * 10_000_000).encode(),
    ]
    return {
        **dict.fromkeys(malformed, MALFORMED),
        charge(queue, job_type="shop.Unheard"): "no handler for job type `shop.Unheard`",
        charge(queue, payload=b'{"customer":7}'): "decode error: ",
    }


def test_messages_that_no_worker_can_run(
    adapter: RabbitMQAdapter, bench: Bench, channel: BlockingChannel
) -> None:
    """Report 19: each is in the dead-letter queue once, verbatim, with a reason; work goes on."""
    bad = _bad_bodies(bench.orders)
    for index, body in enumerate(bad):
        properties = _PROPERTIES[index % len(_PROPERTIES)]
        channel.basic_publish("", bench.orders, body, properties)
    for properties in _PROPERTIES * 2:
        channel.basic_publish("", bench.orders, charge(bench.orders), properties)
    handler = Script()
    with bench.working({bench.shop.Charge: handler}) as worker:
        eventually(lambda: len(handler.runs) == 10)
        eventually(lambda: adapter.look(f"{bench.orders}.dead") == len(bad))
    assert 0 == worker.handle().settle_failures()
    assert 0 == adapter.ready(bench.orders)
    assert {1} == {ctx.attempt for ctx in handler.runs}
    dead = adapter.dead(bench.orders)
    assert sorted(bad) == sorted(body for body, _ in dead)
    assert all(reason.startswith(bad[body]) for body, reason in dead)


# Report 20


class Fails:
    """Fails once for each delay, and then succeeds."""

    def __init__(self, delays: list[str]) -> None:
        self._delays = delays
        self.runs: list[JobContext] = []
        self.jobs: list[Any] = []

    def retry_policy(self, job: Any) -> RetryPolicy:
        """The delay of this run."""
        return RetryPolicy.fixed(10, self._delays[min(len(self.runs), len(self._delays) - 1)])

    def handle(self, job: Any, ctx: JobContext) -> None:
        """Fail as long as there are delays."""
        self.runs.append(ctx)
        self.jobs.append(job)
        if len(self.runs) <= len(self._delays):
            raise Retryable("flaky")


@pytest.mark.parametrize(
    "delays",
    [["300ms"] * 5, ["300ms", "600ms", "300ms", "600ms", "300ms"]],
    ids=["same", "alternating"],
)
def test_a_retried_job_is_the_same_job(
    adapter: RabbitMQAdapter, bench: Bench, delays: list[str]
) -> None:
    """Report 20: six starts, attempts 1 to 6, and all else about the job unchanged."""
    handler = Fails(delays)
    with bench.working({bench.shop.Charge: handler}):
        job_id = bench.producer.enqueue(bench.shop.Charge("ada"), correlation_id="t-1")
        eventually(lambda: len(handler.runs) == 6)
    assert [1, 2, 3, 4, 5, 6] == [ctx.attempt for ctx in handler.runs]
    assert {(job_id, "t-1", 0, 0)} == {
        (ctx.job_id, ctx.correlation_id, ctx.priority, ctx.deferrals) for ctx in handler.runs
    }
    assert 1 == len({ctx.enqueued_at_ms for ctx in handler.runs})
    assert [bench.shop.Charge("ada")] * 6 == handler.jobs
    assert [0, []] == [adapter.ready(bench.orders), adapter.dead(bench.orders)]


def test_a_copy_after_many_retries_is_clean(
    adapter: RabbitMQAdapter, bench: Bench, channel: BlockingChannel
) -> None:
    """Report 20: the fourth copy carries our headers only, not those of broker and sender."""
    foreign = pika.BasicProperties(
        headers={"x-delivery-count": 3, "trace": "t"}, priority=5, expiration="60000"
    )
    handler = Fails(["100ms", "200ms", "100ms", "60s"])
    with bench.working({bench.shop.Charge: handler}):
        channel.basic_publish("", bench.orders, charge(bench.orders), foreign)
        hold = f"{bench.orders}.deferred.60000"
        eventually(lambda: adapter.look(hold) == 1)
    message = adapter.get(hold)
    assert message is not None
    properties, _ = message
    assert {"x-attempt": 5, "x-deferrals": 0} == properties.headers
    assert (2, 0, None) == (properties.delivery_mode, properties.priority, properties.expiration)


# Report 26


@pytest.mark.parametrize(
    ("suffix", "arguments", "said"),
    [
        ("", {"x-max-priority": 5}, ["x-max-priority", "'10'", "'5'"]),
        ("", {}, ["x-max-priority", "'10'", "none"]),
        (".dead", {"x-queue-type": "quorum"}, ["x-queue-type", "'quorum'"]),
    ],
    ids=["other levels", "no levels", "dead-letter queue of another type"],
)
def test_a_queue_that_exists_with_other_arguments(
    adapter: RabbitMQAdapter,
    fresh_queue: FreshQueues,
    channel: BlockingChannel,
    suffix: str,
    arguments: dict[str, Any],
    said: list[str],
) -> None:
    """Report 26: one clear error names queue, argument and both values; the jobs there stay."""
    name = f"{fresh_queue.prefix}.orders{suffix}"
    channel.queue_declare(name, durable=True, arguments=arguments)
    channel.basic_publish("", name, b"kept")
    began = time.monotonic()
    with pytest.raises(BackendError) as caught:
        Bench(adapter, fresh_queue.prefix)
    assert time.monotonic() - began < 5
    assert [] == [text for text in [f"`{name}`", *said] if text not in str(caught.value)]
    assert 1 == adapter.look(name)


def test_a_hold_queue_that_exists_with_other_arguments(
    adapter: RabbitMQAdapter, bench: Bench, channel: BlockingChannel
) -> None:
    """Report 26: a job whose hold queue is refused stays, counted; other jobs and delays go on."""
    channel.queue_declare(f"{bench.orders}.deferred.60000", arguments={"x-message-ttl": 5})
    delays = {"refused": "60s", "held": "120s"}
    done: list[str] = []

    class Handler:
        def retry_policy(self, job: Any) -> RetryPolicy:
            return RetryPolicy.fixed(2, delays.get(job.customer, "1s"))

        def handle(self, job: Any, ctx: JobContext) -> None:
            done.append(job.customer)
            if job.customer in delays:
                raise Retryable("flaky")

    customers = ["refused", "held", "ada"]
    with bench.working({bench.shop.Charge: Handler()}) as worker:
        bench.producer.enqueue_many([bench.shop.Charge(customer) for customer in customers])
        eventually(lambda: adapter.look(f"{bench.orders}.deferred.120000") == 1)
        eventually(lambda: worker.handle().settle_failures() == 1)
    assert sorted(customers) == sorted(done)
    assert 1 == adapter.ready(bench.orders)


# Report 27


def test_an_enqueue_to_a_queue_that_is_not_there(
    adapter: RabbitMQAdapter, fresh_queue: FreshQueues
) -> None:
    """Report 27: the call that sent it raises and names the queue; the very next one succeeds."""
    bench = Bench(adapter, fresh_queue.prefix)
    adapter.delete(bench.mail)
    producer = Producer.undeclared(adapter.backend, bench.shop.Queues)
    began = time.monotonic()
    with pytest.raises(PublishUnroutable, match=bench.mail):
        producer.enqueue(bench.shop.Notify(1))
    assert time.monotonic() - began < 2
    producer.enqueue(bench.shop.Charge("ada"))
    jobs = [bench.shop.Charge(f"{number}") for number in range(9)]
    jobs.insert(4, bench.shop.Notify(4))
    with pytest.raises(PublishError) as caught:
        producer.enqueue_many(jobs)
    assert [4] == list(caught.value.failures)
    assert isinstance(caught.value.failures[4], PublishUnroutable)
    assert 10 == adapter.ready(bench.orders)


def test_an_enqueue_to_a_full_queue(
    adapter: RabbitMQAdapter, fresh_queue: FreshQueues, channel: BlockingChannel
) -> None:
    """Report 27: a queue that refuses is another error than one that is not there."""
    bench = Bench(adapter, fresh_queue.prefix)
    adapter.delete(bench.orders)
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(bench.orders, durable=True, arguments=arguments)
    bench.producer.enqueue(bench.shop.Charge("fits"))
    with pytest.raises(PublishRefused, match=bench.orders) as caught:
        bench.producer.enqueue(bench.shop.Charge("does not"))
    assert not isinstance(caught.value, PublishUnroutable)
    assert 1 == adapter.ready(bench.orders)
