"""What every backend must do with a consumption: windows, stopping, ending."""

import threading
from queue import SimpleQueue

import pytest

from queuey_sync.errors import ConsumerStopped, MalformedEnvelope, SettleError
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import MALFORMED, SETTLE, Adapter, envelope
from tests.support.waiting import eventually


def test_prefetch_is_a_window(adapter: Adapter) -> None:
    """I3, P1: of five messages two arrive, and one more for each that is acked."""
    queue = adapter.queue(prefetch=2)
    sent = [envelope(queue, number) for number in range(5)]
    adapter.backend.publish_many(sent)
    consumer = adapter.consume(queue)
    first, second = consumer.take(), consumer.take()
    assert adapter.ready(queue.full_name) == 3
    second.ack()
    third = consumer.take()
    assert adapter.ready(queue.full_name) == 2
    first.ack()
    third.ack()
    assert sent[3:] == consumer.take_envelopes(2)
    assert sent[2] == third.envelope


def test_prefetch_0_is_unlimited(adapter: Adapter) -> None:
    """I3: with prefetch 0 everything arrives at once."""
    queue = adapter.queue(prefetch=0)
    adapter.backend.publish_many([envelope(queue, number) for number in range(40)])
    consumer = adapter.consume(queue)
    deliveries = [consumer.take() for _ in range(40)]
    assert adapter.ready(queue.full_name) == 0
    for delivery in deliveries:
        delivery.ack()


def test_queues_share_an_inbox_but_no_window(adapter: Adapter) -> None:
    """Each queue of a consumption has its own window into the one inbox."""
    narrow, wide = adapter.queue("narrow", prefetch=1), adapter.queue("wide", prefetch=2)
    for queue in (narrow, wide):
        adapter.backend.publish_many([envelope(queue, number) for number in range(3)])
    consumer = adapter.consume(narrow, wide)
    taken = [consumer.take() for _ in range(3)]
    names = [delivery.queue for delivery in taken]
    assert sorted([narrow.full_name, wide.full_name, wide.full_name]) == sorted(names)
    assert (adapter.ready(narrow.full_name), adapter.ready(wide.full_name)) == (2, 1)


def test_consumers_share_a_queue(adapter: Adapter) -> None:
    """Two consumptions of one queue get every message once between them."""
    queue = adapter.queue(prefetch=2)
    first, second = adapter.consume(queue), adapter.consume(queue)
    sent = [envelope(queue, number) for number in range(4)]
    adapter.backend.publish_many(sent)
    taken = [consumer.take().envelope for consumer in (first, second, first, second)]
    assert sorted(each.job_id for each in sent) == sorted(each.job_id for each in taken)


def test_stop_gives_back_what_nobody_took(adapter: Adapter) -> None:
    """Untaken deliveries go back in their old order; the taken one can still be acked."""
    queue = adapter.queue(prefetch=3)
    sent = [envelope(queue, number) for number in range(5)]
    adapter.backend.publish_many(sent)
    consumer = adapter.consume(queue)
    taken = consumer.take()
    eventually(lambda: consumer.inbox.qsize() == 2)
    consumer.consumption.stop(5)
    eventually(lambda: consumer.inbox.qsize() == 5)
    assert [None] * 5 == [consumer.inbox.get() for _ in range(5)]
    eventually(lambda: adapter.ready(queue.full_name) == 4)
    taken.ack()
    consumer.consumption.close()
    assert sent[1:] == adapter.consume(queue).take_envelopes(4)
    assert consumer.listener.errors == []
    assert consumer.listener.failed == []


def test_what_one_gives_back_another_gets(adapter: Adapter) -> None:
    """A consumption that runs gets what a stopping one gives back."""
    queue = adapter.queue(prefetch=2)
    sent = [envelope(queue, number) for number in range(2)]
    adapter.backend.publish_many(sent)
    stopping = adapter.consume(queue)
    eventually(lambda: stopping.inbox.qsize() == 2)
    running = adapter.consume(queue)
    stopping.end()
    assert sent == running.take_envelopes(2)


@pytest.mark.parametrize("call", SETTLE)
def test_close_gives_back_what_is_unsettled(adapter: Adapter, call: str) -> None:
    """What was taken and not settled goes back to its place; to settle it later is an error."""
    queue = adapter.queue(prefetch=3)
    sent = [envelope(queue, number) for number in range(4)]
    adapter.backend.publish_many(sent)
    consumer = adapter.consume(queue)
    first, second, third = (consumer.take() for _ in range(3))
    second.ack()
    consumer.end()
    eventually(lambda: adapter.ready(queue.full_name) == 3)
    for late in (first, third):
        with pytest.raises(SettleError):
            SETTLE[call](late)
    assert adapter.dead(queue.full_name) == []
    assert adapter.ordered([sent[0], *sent[2:]]) == adapter.ordered(
        adapter.consume(queue).take_envelopes(3)
    )
    assert consumer.listener.failed == []


def test_a_stopped_consumption_does_not_end(adapter: Adapter, queue: QueueConfig) -> None:
    """What was asked to stop is not told that it ended, also when the backend is closed."""
    consumer = adapter.consume(queue)
    adapter.backend.publish(envelope(queue))
    delivery = consumer.take()
    consumer.consumption.stop(0)
    adapter.backend.close()
    delivery.ack()
    consumer.consumption.close()
    assert consumer.listener.errors == []
    assert consumer.listener.failed == []


def test_stopped_means_no_more(adapter: Adapter, queue: QueueConfig) -> None:
    """After a stop nothing is handed out, whatever is published or given back."""
    consumer = adapter.consume(queue)
    adapter.backend.publish(envelope(queue))
    taken = consumer.take()
    consumer.consumption.stop(1)
    assert consumer.inbox.get(timeout=5) is None
    taken.release()
    adapter.backend.publish(envelope(queue))
    eventually(lambda: adapter.ready(queue.full_name) == 2)
    consumer.consumption.close()
    assert consumer.inbox.empty()


def test_close_under_a_consumption(adapter: Adapter, queue: QueueConfig) -> None:
    """I6, M5: closing ends idle and busy consumptions, and says so once, without a cause."""
    idle_queue = adapter.queue("idle")
    idle = adapter.consume(idle_queue)
    busy = adapter.consume(queue)
    adapter.backend.publish_many([envelope(queue, number) for number in range(3)])
    busy.take()
    adapter.backend.close()
    eventually(lambda: idle.listener.errors and busy.listener.errors)
    adapter.backend.close()
    for consumer, name in ((idle, idle_queue.full_name), (busy, queue.full_name)):
        consumer.end(1)
        assert consumer.inbox.get(timeout=5) is None
        (error,) = consumer.listener.errors
        assert isinstance(error, ConsumerStopped)
        assert error.__cause__ is None
        assert name == error.queue
        assert f"consumer for queue `{name}` stopped unexpectedly" == str(error)


def test_consume_on_a_closed_backend(adapter: Adapter, queue: QueueConfig) -> None:
    """I6: consuming a closed backend gives a consumption that is over."""
    adapter.backend.close()
    consumer = adapter.consume(queue)
    eventually(lambda: consumer.listener.errors)
    consumer.end(1)
    assert consumer.inbox.get(timeout=5) is None
    assert len(consumer.listener.errors) == 1


NO_ENVELOPES = {
    "empty": b"",
    "brace": b"{",
    "broken": b"{ broken ]",
    "not UTF-8": b"\xff\xfe\x00",
    "null": b"null",
    "list": b"[]",
    "number": b"7",
    "fields missing": b'{"job_id":"x"}',
    "long": b"x" * 200_000,
}


@pytest.mark.parametrize("body", list(NO_ENVELOPES.values()), ids=NO_ENVELOPES)
def test_malformed_bodies_are_buried(adapter: Adapter, queue: QueueConfig, body: bytes) -> None:
    """P11: a body that is no envelope is put aside as it is, and the next one is served."""
    good = envelope(queue)
    adapter.publish_raw(queue.full_name, body)
    adapter.backend.publish(good)
    consumer = adapter.consume(queue)
    delivery = consumer.take()
    assert body == delivery.body
    with pytest.raises(MalformedEnvelope):
        _ = delivery.envelope
    delivery.bury()
    assert [good] == consumer.take_envelopes(1)
    consumer.end()
    assert adapter.dead(queue.full_name) == [(body, MALFORMED)]
    assert adapter.ready(queue.full_name) == 0
    assert consumer.listener.failed == []


def test_burying_twice_keeps_one_body(adapter: Adapter, queue: QueueConfig) -> None:
    """A second `bury` raises nothing, like the first, and places nothing."""
    adapter.publish_raw(queue.full_name, b"{")
    consumer = adapter.consume(queue)
    delivery = consumer.take()
    delivery.bury()
    delivery.bury()
    consumer.end()
    assert adapter.dead(queue.full_name) == [(b"{", MALFORMED)]


def test_inbox_wakes_blocked_takers(adapter: Adapter, queue: QueueConfig) -> None:
    """A stop wakes a runner that waits for a delivery."""
    consumer = adapter.consume(queue)
    seen: SimpleQueue[object] = SimpleQueue()
    runner = threading.Thread(target=lambda: seen.put(consumer.inbox.get()))
    runner.start()
    consumer.end(1)
    assert seen.get(timeout=5) is None
    runner.join()
