"""Report 22: held jobs return, at their time, from a bounded number of hold queues."""

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from queue import Empty
from typing import Any

import pytest

from queuey_sync import JobContext, QueueConfig, Retryable, RetryPolicy
from queuey_sync.backends.rabbitmq.publishing.outbox import Declares
from queuey_sync.envelope import Envelope
from tests.conftest import FreshQueues
from tests.contract.adapters import RabbitMQAdapter, envelope
from tests.support.broker import Broker
from tests.support.waiting import eventually
from tests.worker.shop import Bench


@pytest.fixture
def adapter(broker: Broker, fresh_queue: FreshQueues) -> Iterator[RabbitMQAdapter]:
    """RabbitMQ with short steps for deferrals, and a way to look behind the backend."""
    adapter = RabbitMQAdapter(broker.url, fresh_queue, deferred_granularity="100ms")
    yield adapter
    adapter.close()


def test_a_long_hold_is_in_nobodys_way(adapter: RabbitMQAdapter, fresh_queue: FreshQueues) -> None:
    """Deferred by 60 s, 2 s and 500 ms, in this order: the last two return in time."""
    bench = Bench(adapter, fresh_queue.prefix)
    returned: dict[str, float] = {}

    def charge(job: Any, ctx: JobContext) -> None:
        returned[job.customer] = time.monotonic()

    with bench.working({bench.shop.Charge: charge}):
        due = {}
        for customer, seconds in (("A", 60), ("B", 2), ("C", 0.5)):
            due[customer] = time.monotonic() + seconds
            bench.producer.defer(bench.shop.Charge(customer), seconds)
        eventually(lambda: len(returned) == 2)
    assert ["C", "B"] == list(returned)
    assert all(-0.02 < returned[customer] - due[customer] < 1 for customer in returned)
    assert 1 == adapter.look(f"{bench.orders}.deferred.60000")


def test_an_idle_hold_queue_goes_and_its_job_stays(adapter: RabbitMQAdapter) -> None:
    """Long after the hold queue has expired unused, the job is on its queue."""
    queue = adapter.queue()
    adapter.backend.defer(envelope(queue), timedelta(milliseconds=300))
    # Looking at the hold queue counts as use: there is one look, long after its expiry at 600 ms.
    time.sleep(1.5)
    assert adapter.look(f"{queue.full_name}.deferred.300") is None
    assert 1 == adapter.ready(queue.full_name)


def test_deferrals_at_the_moment_of_expiry(
    adapter: RabbitMQAdapter, fresh_queue: FreshQueues
) -> None:
    """Jobs that are deferred just when their hold queue is about to expire all arrive.

    One whose confirm was late may come twice, since nobody knows whether its hold queue took it
    along; so each is told from the others.
    """
    step = timedelta(milliseconds=100)
    queues = [QueueConfig(fresh_queue(f"q{number}")) for number in range(10)]
    adapter.backend.declare(queues)
    rounds = 12
    expiry = dict.fromkeys(queues, time.monotonic())
    for number in range(rounds):
        for queue in queues:
            moment = expiry[queue] + (number - rounds / 2) * 0.001
            time.sleep(max(0.0, moment - time.monotonic()))
            adapter.backend.defer(envelope(queue, number), step)
            expiry[queue] = time.monotonic() + 2 * step.total_seconds()

    arrived: dict[str, set[bytes]] = {queue.full_name: set() for queue in queues}
    consumer = adapter.consume(*queues)

    def all_are_back() -> bool:
        with suppress(Empty):
            while delivery := consumer.inbox.get_nowait():
                arrived[delivery.queue].add(bytes(delivery.envelope.payload))
                delivery.ack()
        assert dict.fromkeys(arrived, rounds) == {n: len(seen) for n, seen in arrived.items()}
        return True

    eventually(all_are_back)


def test_a_publish_that_comes_long_after_its_declaration(
    adapter: RabbitMQAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is not lost with its hold queue when a stall parts its declaration from its publish.

    The queue expires 2 s after its declaration, whatever is in it. A job of 1 s that comes into it
    after 1.5 s would have left half a second too late.
    """
    queue = adapter.queue()
    landed, stalls = Declares.landed, [1.5]

    def landed_before_a_stall(declares: Declares) -> Any:
        entries = landed(declares)
        if entries and stalls:
            time.sleep(stalls.pop())
        return entries

    monkeypatch.setattr(Declares, "landed", landed_before_a_stall)
    adapter.backend.defer(envelope(queue), timedelta(seconds=1))
    assert [] == stalls
    eventually(lambda: adapter.ready(queue.full_name) >= 1, 5, "the job is back on its queue")


def test_jitter_makes_a_bounded_number_of_hold_queues(
    broker: Broker, fresh_queue: FreshQueues
) -> None:
    """A thousand failing jobs with jittered backoff share at most max / step hold queues."""
    adapter = RabbitMQAdapter(broker.url, fresh_queue, retry_granularity="10s")
    bench = Bench(adapter, fresh_queue.prefix)

    def charge(job: Any, ctx: JobContext) -> None:
        raise Retryable("down")

    policy = RetryPolicy.exponential(max_attempts=100, base="40s", factor=2, max="300s")
    rng = random.Random(22)
    jobs = []
    for _ in range(1_000):
        job = Envelope.new("shop.Charge", bench.orders, b'{"customer":"ada"}')
        for _ in range(rng.randrange(5)):
            job = job.next_attempt()
        jobs.append(job)
    assert {} == adapter.backend.publish_many(jobs)
    failed_once = {"job_retry_overrides": {bench.shop.Charge: policy}, "concurrency": 8}
    with bench.working({bench.shop.Charge: charge}, **failed_once) as worker:
        eventually(lambda: adapter.ready(bench.orders) == 0, 30)
    assert 0 == worker.handle().settle_failures()
    names = [each["name"] for each in broker.api("queues/%2F?columns=name&disable_stats=true")]
    holds = [name for name in names if name.startswith(f"{bench.orders}.deferred.")]
    assert 15 < len(holds) <= 300 / 10
    assert 1_000 == adapter.ready(bench.orders) + sum(adapter.look(name) or 0 for name in holds)
    adapter.close()
