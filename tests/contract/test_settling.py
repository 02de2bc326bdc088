"""What every backend must do when a delivery is settled: retry, defer, dead-letter, release."""

from datetime import timedelta
from itertools import product

import pytest

from queuey_sync.errors import SerializationError, SettleError, ShutDown
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import SETTLE, STEP, Adapter, envelope
from tests.support.waiting import eventually


@pytest.mark.parametrize("call", ["ack", "retry", "defer", "dead_letter"])
def test_settling_frees_a_slot(adapter: Adapter, call: str) -> None:
    """I3: whatever settles a delivery lets the next one come."""
    queue = adapter.queue(prefetch=1)
    first, second = envelope(queue, 1), envelope(queue, 2)
    adapter.backend.publish_many([first, second])
    consumer = adapter.consume(queue)
    delivery = consumer.take()
    assert adapter.ready(queue.full_name) == 1
    SETTLE[call](delivery)
    assert second == consumer.take().envelope


@pytest.mark.parametrize(("first", "second"), list(product(SETTLE, SETTLE)))
def test_only_one_settling_call(
    adapter: Adapter, queue: QueueConfig, first: str, second: str
) -> None:
    """A second settling call raises, whichever it is, and places nothing."""
    adapter.backend.publish(envelope(queue))
    consumer = adapter.consume(queue)
    delivery = consumer.take()
    consumer.consumption.stop(0)
    SETTLE[first](delivery)
    with pytest.raises(SettleError):
        SETTLE[second](delivery)
    consumer.consumption.close()
    eventually(lambda: adapter.ready(queue.full_name) == int(first == "release"))
    assert int(first == "dead_letter") == len(adapter.dead(queue.full_name))
    assert consumer.listener.failed == []


def test_retry(adapter: Adapter, queue: QueueConfig) -> None:
    """I5, P2: the next attempt arrives after its delay and not before; the original is acked."""
    sent = envelope(queue, priority=5)
    adapter.backend.publish(sent)
    consumer = adapter.consume(queue)
    delivery = consumer.take()
    retried_at = adapter.now()
    SETTLE["retry"](delivery)
    again = consumer.take()
    assert 0.98 <= adapter.now() - retried_at < 2.5
    assert sent.next_attempt() == again.envelope
    again.ack()
    consumer.end()
    assert (adapter.ready(queue.full_name), adapter.held(queue.full_name)) == (0, 0)


def test_retry_with_no_delay_arrives(adapter: Adapter, queue: QueueConfig) -> None:
    """I5: a retry without a delay is legal."""
    sent = envelope(queue)
    adapter.backend.publish(sent)
    consumer = adapter.consume(queue)
    consumer.take().retry(sent.next_attempt(), timedelta(0))
    assert [sent.next_attempt()] == consumer.take_envelopes(1)


def test_defer(adapter: Adapter, queue: QueueConfig) -> None:
    """G3, P5, P15: a deferral is held, then served ahead of what waits; its attempt is kept."""
    late, *others = [envelope(queue, number) for number in range(3)]
    adapter.backend.publish(late)
    consumer = adapter.consume(queue)
    delivery = consumer.take()
    consumer.consumption.stop(0)
    SETTLE["defer"](delivery)
    consumer.consumption.close()
    assert (adapter.held(queue.full_name), adapter.ready(queue.full_name)) == (1, 0)
    adapter.backend.publish_many(others)
    gate = adapter.queue("gate")
    adapter.backend.publish(envelope(gate), STEP * 2)
    adapter.consume(gate).take()
    assert (adapter.held(queue.full_name), adapter.ready(queue.full_name)) == (0, 3)
    assert adapter.ordered([late.deferred(10), *others]) == adapter.ordered(
        adapter.consume(queue).take_envelopes(3)
    )


def test_a_long_delay_holds_up_no_short_one(adapter: Adapter, queue: QueueConfig) -> None:
    """P3: a short delay that was asked for later ends first."""
    long, short = envelope(queue, 1), envelope(queue, 2)
    adapter.backend.publish_many([long, short])
    consumer = adapter.consume(queue)
    consumer.take().retry(long.next_attempt(), STEP * 3)
    consumer.take().retry(short.next_attempt(), STEP)
    assert [short.next_attempt(), long.next_attempt()] == consumer.take_envelopes(2)


def test_dead_letter(adapter: Adapter, queue: QueueConfig) -> None:
    """P6: the unchanged body is on the dead-letter queue, with its reason; the original is gone."""
    sent = envelope(queue).next_attempt().next_attempt()
    adapter.backend.publish(sent)
    consumer = adapter.consume(queue)
    consumer.take().dead_letter("bad input: é")
    consumer.end()
    assert adapter.dead(queue.full_name) == [(sent.encode(), "bad input: é")]
    assert adapter.ready(queue.full_name) == 0


def test_release(adapter: Adapter) -> None:
    """A released job comes again, unchanged and ahead of younger ones."""
    queue = adapter.queue(prefetch=1)
    first, second = envelope(queue, 1), envelope(queue, 2)
    adapter.backend.publish_many([first, second])
    consumer = adapter.consume(queue)
    consumer.take().release()
    assert [first, second] == consumer.take_envelopes(2)
    consumer.end()
    assert consumer.listener.failed == []


@pytest.mark.parametrize("call", ["retry", "defer", "dead_letter"])
def test_nothing_is_placed_after_close(adapter: Adapter, queue: QueueConfig, call: str) -> None:
    """I6: once the backend is closed what would place a copy raises, and places none."""
    adapter.backend.publish(envelope(queue))
    delivery = adapter.consume(queue).take()
    adapter.backend.close()
    with pytest.raises((ShutDown, SettleError)):
        SETTLE[call](delivery)
    assert adapter.held(queue.full_name) == 0
    assert adapter.dead(queue.full_name) == []


def test_placing_before_settling(adapter: Adapter, queue: QueueConfig) -> None:
    """When the copy cannot be encoded the delivery stays unsettled, to be settled otherwise."""
    adapter.backend.publish(envelope(queue))
    delivery = adapter.consume(queue).take()
    unencodable = delivery.envelope.with_correlation_id("\ud800")
    for call in (delivery.retry, delivery.defer):
        with pytest.raises(SerializationError):
            call(unencodable, STEP)
    delivery.ack()
