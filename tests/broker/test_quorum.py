"""Quorum queues on a real broker: held jobs return, and what is given back does not vanish.

What every kind of queue must do is in the contract suite, which runs on this one too.
"""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from queuey_sync import (
    Handlers,
    Job,
    JobContext,
    Producer,
    QueueSet,
    Retryable,
    RetryPolicy,
    Worker,
    queue,
)
from queuey_sync.queues import QueueConfig
from tests.conftest import FreshQueues
from tests.contract.adapters import RabbitMQAdapter, envelope
from tests.support.waiting import eventually

STOPS = 30
"""More than the 20 after which RabbitMQ 4 deletes a message, unless it is told otherwise."""


@pytest.fixture
def adapter(amqp_url: str, fresh_queue: FreshQueues) -> Iterator[RabbitMQAdapter]:
    """Quorum queues, and a way to look behind the backend."""
    adapter = RabbitMQAdapter(amqp_url, fresh_queue, kind="quorum")
    yield adapter
    adapter.close()


@pytest.fixture
def config(adapter: RabbitMQAdapter) -> QueueConfig:
    """A declared, empty queue."""
    return adapter.queue()


def test_a_hold_queue_that_was_idle_keeps_what_comes(
    adapter: RabbitMQAdapter, config: QueueConfig
) -> None:
    """Declared again when it is long past its time, it holds a job and gives it back."""
    delay = timedelta(seconds=2)
    adapter.backend.defer(envelope(config, 1), delay)
    time.sleep(1.65 * delay.total_seconds())
    adapter.backend.defer(envelope(config, 2), delay)
    eventually(lambda: 2 == adapter.ready(config.full_name), 5)


def test_a_job_outlasts_any_number_of_stops(adapter: RabbitMQAdapter, config: QueueConfig) -> None:
    """Each graceful stop gives it back; it is there after all of them."""
    sent = envelope(config)
    adapter.backend.publish(sent)
    for _ in range(STOPS):
        consumer = adapter.consume(config)
        consumer.take().release()
        consumer.end()
    assert [sent] == adapter.consume(config).take_envelopes(1)


def test_a_dead_letter_outlasts_any_number_of_looks(
    adapter: RabbitMQAdapter, config: QueueConfig
) -> None:
    """Taken and given back, as tools do that show what is on a queue."""
    adapter.backend.publish(envelope(config))
    adapter.consume(config).take().dead_letter("bad input")
    looks = 0
    while looks < STOPS:
        looks += adapter.peek(f"{config.full_name}.dead")
    [(_, reason)] = adapter.dead(config.full_name)
    assert "bad input" == reason


def test_a_job_that_is_given_back_without_end_is_dead(
    adapter: RabbitMQAdapter, config: QueueConfig
) -> None:
    """As if it killed its worker each time: the broker moves it to the dead letters."""
    adapter.backend.publish(envelope(config))
    looks = 0
    while not adapter.ready(f"{config.full_name}.dead"):
        looks += adapter.peek(config.full_name)
    assert 1_001 == looks


def test_waits_are_rounded_up_to_few_lengths(adapter: RabbitMQAdapter, config: QueueConfig) -> None:
    """Hold queues stay, so there must not be one for each second that jitter can draw."""
    for seconds in range(16, 21):
        adapter.backend.defer(envelope(config, seconds), timedelta(seconds=seconds))
    assert 5 == adapter.look(f"{config.full_name}.deferred.quorum.20000")


def test_a_worker_on_quorum_queues(adapter: RabbitMQAdapter, fresh_queue: FreshQueues) -> None:
    """Jobs succeed, are tried again, and die as on any other queue; others share the worker."""

    class Shop(QueueSet, prefix=fresh_queue.prefix, kind="quorum"):
        ORDERS = queue(retry=RetryPolicy.fixed(2, "1s"))
        MAIL = queue(kind="classic")

    class Charge(Job[Shop], queue=Shop.ORDERS, name="charge"):
        amount: int

    class Notify(Job[Shop], queue=Shop.MAIL, name="notify"):
        amount: int

    handlers = Handlers(Shop)
    attempts: list[tuple[int, int]] = []

    @handlers.register
    def charge(job: Charge, ctx: JobContext) -> None:
        attempts.append((job.amount, ctx.attempt))
        producer.enqueue(Notify(job.amount))
        if ctx.attempt < job.amount:
            raise Retryable("not yet")

    @handlers.register
    def notify(job: Notify) -> None:
        attempts.append((job.amount, 0))

    producer = Producer(adapter.backend, Shop)
    producer.enqueue_many([Charge(1), Charge(2), Charge(3)])
    worker = Worker(adapter.backend, Shop, handlers=handlers)
    summary = worker.drain(wait_held="5s")
    assert ["empty", 7, 2, 1] == [
        summary.ended_by,
        *(summary.total(what) for what in ("succeeded", "retried", "dead")),
    ]
    assert [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)] == sorted(one for one in attempts if one[1])
    assert 1 == adapter.ready(f"{Shop.ORDERS.full_name}.dead")
