"""What only the memory backend does, beside the contract suite: helpers, clock, slots."""

import gc
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from queuey_sync.backends.base import Delivery, Inbox
from queuey_sync.backends.memory.backend import MemoryBackend
from queuey_sync.envelope import Envelope
from queuey_sync.errors import ConfigurationError, MalformedEnvelope, SettleError, ShutDown
from queuey_sync.queues import QueueConfig
from queuey_sync.testing import ManualClock
from tests.support.listening import Deaf
from tests.support.waiting import eventually

ORDERS = QueueConfig("shop.orders", prefetch=4)
DELAY = timedelta(seconds=30)


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `backend`."""
    return ManualClock()


@pytest.fixture
def backend(clock: ManualClock) -> MemoryBackend:
    """A backend whose time stands still."""
    return MemoryBackend(clock)


def envelope(number: int = 0, priority: int = 0) -> Envelope:
    """A fresh envelope for `ORDERS`."""
    payload = f'{{"n":{number}}}'.encode()
    return Envelope.new("shop.Charge", ORDERS.full_name, payload, priority=priority)


def consume(backend: MemoryBackend, config: QueueConfig = ORDERS) -> Inbox:
    """The inbox of a new consumption."""
    inbox = Inbox()
    backend.consume([config], inbox, Deaf())
    return inbox


def take(inbox: Inbox) -> Delivery:
    """What is in the inbox now."""
    delivery = inbox.get_nowait()
    assert delivery is not None
    return delivery


def deliver(backend: MemoryBackend, sent: Envelope) -> Delivery:
    """Publish, and take the delivery."""
    backend.publish(sent)
    return take(consume(backend))


def test_first_declaration_wins(backend: MemoryBackend) -> None:
    """I1: redeclaring changes and drops nothing."""
    backend.declare([ORDERS])
    backend.publish(envelope())
    for _ in range(2):
        backend.declare([QueueConfig("shop.orders", prefetch=9)])
    assert backend.pending("shop.orders") == 1
    assert backend.queue_config("shop.orders") == ORDERS
    assert backend.queue_names() == ["shop.orders"]


@pytest.mark.parametrize(
    "use",
    [
        lambda backend: backend.publish(envelope()),
        lambda backend: backend.publish(envelope(), DELAY),
        lambda backend: backend.defer(envelope(), DELAY),
        consume,
    ],
    ids=["publish", "publish later", "defer", "consume"],
)
def test_first_use_makes_a_default_queue(
    backend: MemoryBackend, use: Callable[[MemoryBackend], object]
) -> None:
    """A queue that was never declared appears with the default properties."""
    use(backend)
    assert backend.queue_names() == ["shop.orders"]
    assert backend.queue_config("shop.orders") == QueueConfig("shop.orders")


def test_queue_names_are_sorted(backend: MemoryBackend) -> None:
    """Names come sorted, not as declared."""
    backend.declare([QueueConfig("b"), QueueConfig("a"), QueueConfig("c")])
    assert backend.queue_names() == ["a", "b", "c"]


def test_unknown_queue_is_empty(backend: MemoryBackend) -> None:
    """I5: looking at an unknown queue gives 0, nothing or None, and does not make it."""
    assert backend.pending("x") == backend.deferred("x") == 0
    lists = (
        backend.acked("x"),
        backend.succeeded("x"),
        backend.retried("x"),
        backend.settled("x"),
        backend.dead_letters("x"),
        backend.buried("x"),
    )
    assert lists == ([], [], [], [], [], [])
    assert backend.queue_config("x") is None
    assert backend.queue_names() == []


def test_delayed_publish_counts_nowhere(backend: MemoryBackend, clock: ManualClock) -> None:
    """H2: a delayed publish is neither pending nor held until its time."""
    backend.publish(envelope(), DELAY)
    clock.advance("29s")
    assert (backend.pending("shop.orders"), backend.deferred("shop.orders")) == (0, 0)
    clock.advance("2s")
    assert (backend.pending("shop.orders"), backend.deferred("shop.orders")) == (1, 0)


def test_hold_ends_at_its_time(backend: MemoryBackend, clock: ManualClock) -> None:
    """H3: a deferral is held to the very end of its delay, then pending and first."""
    waiting, late = envelope(1), envelope(2, priority=10)
    backend.publish(waiting)
    backend.defer(late, DELAY)
    clock.advance(DELAY - timedelta(microseconds=1))
    assert (backend.deferred("shop.orders"), backend.pending("shop.orders")) == (1, 1)
    clock.advance(timedelta(microseconds=1))
    assert (backend.deferred("shop.orders"), backend.pending("shop.orders")) == (0, 2)
    inbox = consume(backend)
    assert [take(inbox).envelope, take(inbox).envelope] == [late, waiting]


def test_retry_later(backend: MemoryBackend, clock: ManualClock) -> None:
    """I5: the original is acked at once; the next attempt comes when its delay ends, not before."""
    sent = envelope()
    backend.publish(sent)
    inbox = consume(backend)
    take(inbox).retry(sent.next_attempt(), timedelta(seconds=10))
    assert backend.settled("shop.orders") == [(sent, "retried")]
    clock.advance("9999ms")
    assert inbox.empty()
    assert (backend.pending("shop.orders"), backend.deferred("shop.orders")) == (0, 0)
    clock.advance("1ms")
    assert take(inbox).envelope == sent.next_attempt()


def test_records(backend: MemoryBackend) -> None:
    """I5: failing once, deferring once and succeeding, without delays, is recorded in order."""
    first = envelope()
    second = first.next_attempt()
    third = second.deferred(10)
    backend.publish(first)
    inbox = consume(backend)
    take(inbox).retry(second, timedelta(0))
    take(inbox).defer(third, timedelta(0))
    assert backend.deferred("shop.orders") == 0
    take(inbox).ack()
    assert backend.settled("shop.orders") == [
        (first, "retried"),
        (second, "deferred"),
        (third, "succeeded"),
    ]
    assert backend.acked("shop.orders") == [first, second, third]
    assert backend.succeeded("shop.orders") == [third]
    assert backend.retried("shop.orders") == [first]


def test_dead_letter_is_not_an_ack(backend: MemoryBackend) -> None:
    """F4: a dead letter is kept with its reason, and nothing counts as acked."""
    sent = envelope()
    deliver(backend, sent).dead_letter("fatal error: bad input")
    assert backend.dead_letters("shop.orders") == [(sent, "fatal error: bad input")]
    assert backend.acked("shop.orders") == []


def test_bury_keeps_the_bytes(backend: MemoryBackend, caplog: pytest.LogCaptureFixture) -> None:
    """P11: a body that is no envelope is kept aside and logged; its slot is free again."""
    backend.publish_raw("shop.orders", b"{ broken ]")
    backend.publish(envelope())
    inbox = consume(backend, QueueConfig("shop.orders", prefetch=1))
    take(inbox).bury()
    assert backend.buried("shop.orders") == [b"{ broken ]"]
    assert "shop.orders" in caplog.text
    assert take(inbox).envelope.job_type == "shop.Charge"


def test_a_malformed_body_can_only_be_buried(backend: MemoryBackend) -> None:
    """Settling a body that is no envelope in another way raises, and places nothing."""
    backend.publish_raw("shop.orders", b"{")
    delivery = take(consume(backend))
    calls: list[Callable[[], None]] = [
        delivery.ack,
        lambda: delivery.retry(envelope(), timedelta(0)),
        lambda: delivery.defer(envelope(), timedelta(0)),
        lambda: delivery.dead_letter("no"),
    ]
    for call in calls:
        with pytest.raises(MalformedEnvelope):
            call()
    assert backend.pending("shop.orders") == 0
    delivery.bury()
    assert backend.buried("shop.orders") == [b"{"]


def test_the_least_busy_consumer_is_next(backend: MemoryBackend) -> None:
    """Several consumers of a queue get their share."""
    first, second = consume(backend), consume(backend)
    for number in range(4):
        backend.publish(envelope(number))
    assert (first.qsize(), second.qsize()) == (2, 2)


def test_prefetch_is_of_the_consumer(backend: MemoryBackend) -> None:
    """I3: the window is that of the config passed to consume, not of the declaration."""
    backend.declare([ORDERS])
    for number in range(3):
        backend.publish(envelope(number))
    inbox = consume(backend, QueueConfig("shop.orders", prefetch=2))
    assert (inbox.qsize(), backend.pending("shop.orders")) == (2, 1)
    assert consume(backend, QueueConfig("shop.orders", prefetch=0)).qsize() == 1


def test_after_close_only_ack(backend: MemoryBackend, clock: ManualClock) -> None:
    """I6: what is outstanding can be acked after the close, and nothing else."""
    sent = envelope()
    delivery = deliver(backend, sent)
    backend.close()
    calls: list[Callable[[], None]] = [
        lambda: delivery.retry(sent.next_attempt(), DELAY),
        lambda: delivery.defer(sent.deferred(10), DELAY),
        lambda: delivery.dead_letter("no"),
        delivery.release,
    ]
    for call in calls:
        with pytest.raises(ShutDown):
            call()
    delivery.bury()
    assert backend.acked("shop.orders") == []
    assert backend.dead_letters("shop.orders") == []
    assert backend.buried("shop.orders") == []
    delivery.ack()
    assert backend.succeeded("shop.orders") == [sent]
    clock.advance("1h")
    assert backend.pending("shop.orders") == 0


def test_close_gives_back_the_buffer(backend: MemoryBackend) -> None:
    """I6: what was pushed and not taken is pending again after the close."""
    for number in range(3):
        backend.publish(envelope(number))
    inbox = consume(backend)
    take(inbox)
    backend.close()
    assert inbox.empty()
    assert backend.pending("shop.orders") == 2


def test_close_drops_what_is_delayed(backend: MemoryBackend, clock: ManualClock) -> None:
    """I7: after the close nothing arrives any more, and the holds end."""
    backend.publish(envelope(), DELAY)
    backend.defer(envelope(), DELAY)
    backend.close()
    clock.advance("31s")
    assert (backend.pending("shop.orders"), backend.deferred("shop.orders")) == (0, 0)


def test_nothing_is_settled_when_the_copy_cannot_be_placed() -> None:
    """Schedule before ack: a clock that fails leaves the delivery unsettled."""

    class BrokenClock:
        def call_later(self, delay: timedelta, callback: Callable[[], None]) -> None:
            raise OSError("no timer")

    backend = MemoryBackend(BrokenClock())
    sent = envelope()
    delivery = deliver(backend, sent)
    with pytest.raises(OSError, match="no timer"):
        delivery.retry(sent.next_attempt(), DELAY)
    with pytest.raises(OSError, match="no timer"):
        delivery.defer(sent.deferred(10), DELAY)
    assert backend.acked("shop.orders") == []
    assert backend.deferred("shop.orders") == 0
    delivery.ack()


def test_abandoned_delivery_frees_its_slot(backend: MemoryBackend) -> None:
    """I3: a delivery thrown away unsettled frees its slot; its message is not given back."""
    first, second, third = (envelope(number) for number in range(3))
    for sent in (first, second, third):
        backend.publish(sent)
    inbox = consume(backend, QueueConfig("shop.orders", prefetch=1))
    delivery = take(inbox)
    assert inbox.empty()
    del delivery
    gc.collect()
    delivery = take(inbox)
    assert second == delivery.envelope
    delivery.ack()
    del delivery
    gc.collect()
    assert inbox.qsize() == 1
    assert third == take(inbox).envelope
    assert backend.pending("shop.orders") == 0


def test_abandoned_while_the_lock_is_held(backend: MemoryBackend) -> None:
    """A delivery collected under the backend's own lock blocks nothing; its slot is freed."""
    inbox = consume(backend, QueueConfig("shop.orders", prefetch=1))
    backend.publish(envelope(1))
    backend.publish(envelope(2))
    delivery = take(inbox)
    with backend._store.locked():
        del delivery
        gc.collect()
        assert inbox.empty()
    assert inbox.qsize() == 1


def test_abandoned_with_the_backend() -> None:
    """A backend that is thrown away in the middle of its work leaves nothing behind."""
    backend = MemoryBackend()
    for number in range(9):
        backend.publish(envelope(number))
    inbox = consume(backend)
    taken = take(inbox)
    gone = weakref.ref(backend._store)
    del backend, inbox, taken

    def is_collected() -> bool:
        gc.collect()
        return gone() is None

    eventually(is_collected)


def test_abandoning_from_many_threads(backend: MemoryBackend) -> None:
    """Slots are freed exactly once, whether deliveries are settled or thrown away."""
    inbox = consume(backend, QueueConfig("shop.orders", prefetch=3))
    count = 2000
    left = threading.Semaphore(0)

    def run(odd: int) -> None:
        while delivery := inbox.get():
            if odd:
                delivery.ack()
            del delivery
            left.release()

    # Daemons, so that a failure of this test is one, and not a process that never ends.
    runners = [threading.Thread(target=run, args=(number % 2,), daemon=True) for number in range(4)]
    for runner in runners:
        runner.start()
    for number in range(count):
        backend.publish(envelope(number))
    for _ in range(count):
        assert left.acquire(timeout=10)
    for _ in runners:
        inbox.put(None)
    for runner in runners:
        runner.join()
    for number in range(5):
        backend.publish(envelope(number))
    assert (inbox.qsize(), backend.pending("shop.orders")) == (3, 2)


def test_a_second_settle_is_refused_and_recorded_once(backend: MemoryBackend) -> None:
    """Two threads that settle one delivery: one of them gets the error."""
    sent = envelope()
    delivery = deliver(backend, sent)
    delivery.ack()
    with pytest.raises(SettleError, match=r"retry .* `shop\.orders`"):
        delivery.retry(sent.next_attempt(), DELAY)
    assert backend.settled("shop.orders") == [(sent, "succeeded")]


@pytest.mark.parametrize("clock", [3, "now", object()])
def test_what_is_no_clock_is_refused(clock: Any) -> None:
    """An object that calls nobody back would be found at the first delay only."""
    with pytest.raises(ConfigurationError, match=r"^clock: "):
        MemoryBackend(clock)
