"""What every backend must do with what is declared and published."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from queuey_sync.backends.base import Backend
from queuey_sync.errors import ShutDown
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import STEP, Adapter, envelope
from tests.support.waiting import eventually


def test_declare_again_keeps_messages(adapter: Adapter, queue: QueueConfig) -> None:
    """I1, P1: declaring again, also through a second backend, changes and drops nothing."""
    adapter.backend.publish(envelope(queue))
    adapter.backend.declare([queue, queue])
    adapter.another_backend().declare([queue])
    eventually(lambda: adapter.ready(queue.full_name) == 1)


def test_declare_nothing(adapter: Adapter) -> None:
    """An empty declaration does nothing."""
    adapter.backend.declare([])


def test_what_is_published_is_delivered(adapter: Adapter, queue: QueueConfig) -> None:
    """P1: the equal envelope, in the very bytes, is delivered; after the ack nothing is left."""
    sent = envelope(queue, priority=3).with_correlation_id("t-1")
    adapter.backend.publish(sent)
    consumer = adapter.consume(queue)
    delivery = consumer.take()
    assert sent == delivery.envelope
    assert sent.encode() == delivery.body
    assert queue.full_name == delivery.queue
    delivery.ack()
    consumer.end()
    assert adapter.ready(queue.full_name) == 0
    assert consumer.listener.failed == []


def test_publish_many_keeps_the_order(adapter: Adapter, queue: QueueConfig) -> None:
    """Publishing together places each envelope once, in order."""
    sent = [envelope(queue, number) for number in range(50)]
    assert adapter.backend.publish_many(sent) == {}
    assert sent == adapter.consume(queue).take_envelopes(50)
    assert adapter.backend.publish_many([]) == {}


def test_higher_levels_first(adapter: Adapter, queue: QueueConfig) -> None:
    """I2: higher levels are served first, and equal ones in the order in which they came."""
    n1, u1, n2, u2, m, n3 = sent = [
        envelope(queue, number, level) for number, level in enumerate([0, 10, 0, 10, 5, 0])
    ]
    for each in sent:
        adapter.backend.publish(each)
    assert adapter.ordered([u1, u2, m, n1, n2, n3]) == adapter.ordered(
        adapter.consume(queue).take_envelopes(6)
    )


def test_delayed_publish_is_never_early(adapter: Adapter, queue: QueueConfig) -> None:
    """H2: a delayed publish is unseen until its delay is over, and then arrives as it was sent."""
    consumer = adapter.consume(queue)
    sent = envelope(queue)
    published_at = adapter.now()
    adapter.backend.publish(sent, STEP)
    assert adapter.ready(queue.full_name) == 0
    assert [sent] == consumer.take_envelopes(1)
    assert 0.98 <= adapter.now() - published_at < 2.5


def test_deferred_from_outside_comes_first(adapter: Adapter, queue: QueueConfig) -> None:
    """H3, P5: a held message counts as held, then is served ahead of what waits."""
    waiting, deferred = envelope(queue, 1), envelope(queue, 2, priority=10)
    adapter.backend.publish(waiting)
    adapter.backend.defer(deferred, STEP)
    assert (adapter.held(queue.full_name), adapter.ready(queue.full_name)) == (1, 1)
    gate = adapter.queue("gate")
    adapter.backend.publish(envelope(gate), STEP * 2)
    adapter.consume(gate).take()
    assert (adapter.held(queue.full_name), adapter.ready(queue.full_name)) == (0, 2)
    assert adapter.ordered([deferred, waiting]) == adapter.ordered(
        adapter.consume(queue).take_envelopes(2)
    )


def test_any_thread_may_publish(adapter: Adapter, queue: QueueConfig) -> None:
    """Publishing from many threads at once loses nothing and doubles nothing."""

    def publish(first: int) -> None:
        for number in range(first, first + 25):
            adapter.backend.publish(envelope(queue, number))

    threads = [threading.Thread(target=publish, args=(first,)) for first in range(0, 200, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [bytes(each.payload) for each in adapter.consume(queue).take_envelopes(200)]
    assert sorted(f'{{"n":{number}}}'.encode() for number in range(200)) == sorted(numbers)


def test_close_is_final(adapter: Adapter, queue: QueueConfig) -> None:
    """I6: closing twice is fine; everything afterwards raises `ShutDown`."""
    backend: Backend = adapter.backend
    assert not backend.is_closed()
    backend.close()
    backend.close()
    assert backend.is_closed()
    calls: list[Callable[[], None]] = [
        lambda: backend.declare([queue]),
        lambda: backend.publish(envelope(queue)),
        lambda: backend.publish(envelope(queue), STEP),
        lambda: backend.defer(envelope(queue), timedelta(0)),
    ]
    for call in calls:
        with pytest.raises(ShutDown):
            call()
