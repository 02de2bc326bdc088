"""A worker that is to reconnect, and faults of a real broker and network: it heals, or says why."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from queuey_sync import (
    Backoff,
    BrokerUnavailable,
    ConfigurationError,
    Handlers,
    MemoryBackend,
    Retryable,
    Worker,
)
from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from tests.contract.adapters import RabbitMQAdapter
from tests.support.proxy import Proxy
from tests.support.shop import Shop
from tests.support.waiting import eventually
from tests.worker.shop import Bench, Gate, Script


def _soon() -> Backoff:
    return Backoff("100ms", max="1s")


@pytest.fixture
def through_proxy(amqp_url: str, fresh_queue: Any) -> Iterator[tuple[Bench, Proxy]]:
    """The shop on RabbitMQ, behind a proxy that breaks connections; the test looks past it."""
    with Proxy(amqp_url) as proxy:
        adapter = RabbitMQAdapter(amqp_url, fresh_queue)
        adapter.backend.close()
        adapter.backend = RabbitMQBackend(f"{proxy.url}?heartbeat=2")
        yield Bench(adapter, fresh_queue.prefix), proxy
        adapter.close()


def _enqueue(bench: Bench, *customers: str) -> None:
    bench.producer.enqueue_many([bench.shop.Charge(customer) for customer in customers])


def test_a_cut_connection_is_healed(through_proxy: tuple[Bench, Proxy]) -> None:
    """Q2: jobs that ran run once more, and their late settles count; all others run once."""
    bench, proxy = through_proxy
    gate = Gate()
    _enqueue(bench, "a", "b")
    with bench.working({bench.shop.Charge: gate}, concurrency=2, reconnect=_soon()) as worker:
        eventually(lambda: 2 == gate.total())
        proxy.cut()
        _enqueue(bench, "c", "d")
        gate.open.set()
        eventually(lambda: gate.total() >= 6)
        eventually(lambda: 2 == worker.handle().settle_failures())
    assert {"a": 2, "b": 2, "c": 1, "d": 1} == gate.runs
    assert 2 == worker.handle().settle_failures()
    assert 0 == bench.adapter.ready(bench.orders)


def test_a_cut_in_every_moment_loses_nothing(
    through_proxy: tuple[Bench, Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    """Under load, with retries: each job ends, and what ran twice had its connection cut."""
    bench, proxy = through_proxy
    caplog.set_level(logging.INFO)
    done: Counter[str] = Counter()
    lock = threading.Lock()

    def charge(job: Any, ctx: Any) -> None:
        if ctx.attempt == 1 and int(job.customer) % 10 == 0:
            raise Retryable("once more")
        with lock:
            done[job.customer] += 1

    with bench.working({bench.shop.Charge: charge}, reconnect=_soon()):
        eventually(lambda: " consuming " in caplog.text)
        for batch in range(10):
            _enqueue(bench, *(str(n) for n in range(batch * 100, batch * 100 + 100)))
            proxy.cut()
        eventually(lambda: 1_000 == len(done), 60)
    assert 0 == bench.adapter.ready(bench.orders)
    assert [] == bench.dead(bench.orders)


def test_a_retry_is_not_published_for_a_lost_delivery(through_proxy: tuple[Bench, Proxy]) -> None:
    """It comes back by itself: a copy would make two of it."""
    bench, proxy = through_proxy
    go_on, cut = threading.Event(), threading.Event()
    attempts: list[int] = []

    def charge(_: Any, ctx: Any) -> None:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            cut.set()
            assert go_on.wait(30)
            raise Retryable("too late")

    _enqueue(bench, "a")
    with bench.working({bench.shop.Charge: charge}, concurrency=2, reconnect=_soon()) as worker:
        assert cut.wait(20)
        proxy.cut()
        eventually(lambda: 2 == len(attempts))
        go_on.set()
        eventually(lambda: 1 == worker.handle().settle_failures())
    assert [1, 1] == attempts
    assert 0 == bench.adapter.held(bench.orders) == bench.adapter.ready(bench.orders)


def test_a_network_that_falls_silent_is_noticed(
    through_proxy: tuple[Bench, Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    """Without a word from the broker for two heartbeats, it dials again, until there is one."""
    bench, proxy = through_proxy
    caplog.set_level(logging.INFO)
    handler = Script()
    with bench.working({bench.shop.Charge: handler}, reconnect=_soon()) as worker:
        _enqueue(bench, "a")
        eventually(lambda: 1 == len(handler.runs))
        proxy.drops_replies = True
        other = RabbitMQAdapter(bench.adapter._url, str)  # type: ignore[attr-defined]
        try:
            Bench(other, bench.orders.partition(".")[0]).producer.enqueue(bench.shop.Charge("b"))
        finally:
            other.close()
        eventually(lambda: "connecting again" in caplog.text, 20)
        proxy.drops_replies = False
        eventually(lambda: 2 == len(handler.runs), 25)
    assert 0 == worker.handle().settle_failures()


@pytest.mark.slow
def test_a_frozen_network_is_noticed_in_time(
    through_proxy: tuple[Bench, Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    """With a heartbeat of 10 s within 25 s; and 15 s after it is over, jobs run again."""
    bench, proxy = through_proxy
    caplog.set_level(logging.INFO)
    bench.adapter.backend.close()
    bench.adapter.backend = RabbitMQBackend(f"{proxy.url}?heartbeat=10")
    bench = Bench(bench.adapter, bench.orders.partition(".")[0])
    handler = Script()
    with bench.working({bench.shop.Charge: handler}, reconnect=Backoff("1s", max="30s")):
        _enqueue(bench, "a")
        eventually(lambda: 1 == len(handler.runs))
        proxy.freeze()
        eventually(lambda: "connecting again" in caplog.text, 25)
        proxy.thaw()
        eventually(lambda: caplog.text.count(" consuming ") == 2, 15)
        _enqueue(bench, "b")
        eventually(lambda: 2 == len(handler.runs))


def test_a_cut_before_the_broker_has_the_ack(through_proxy: tuple[Bench, Proxy]) -> None:
    """A job whose ack was written and never came there runs once more, and no other does."""
    bench, proxy = through_proxy
    gate = Gate()
    _enqueue(bench, "a")
    with bench.working({bench.shop.Charge: gate}, concurrency=1, reconnect=_soon()) as worker:
        eventually(lambda: 1 == gate.total())
        proxy.drops_requests = True
        gate.open.set()
        succeeded = worker.handle().counts
        eventually(lambda: 1 == succeeded(bench.orders).succeeded)
        proxy.drops_requests = False
        proxy.cut()
        _enqueue(bench, "b")
        eventually(lambda: {"a": 2, "b": 1} == gate.runs)
    assert 0 == bench.adapter.ready(bench.orders)


def test_a_deleted_queue_is_declared_again(
    through_proxy: tuple[Bench, Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    """The jobs on it are gone, and new ones run; the other queue's job does not notice."""
    bench, _ = through_proxy
    gate, notified = Gate(), Script()
    handlers = {bench.shop.Charge: gate, bench.shop.Notify: notified}
    _enqueue(bench, "a")
    with bench.working(handlers, reconnect=_soon()) as worker:
        eventually(lambda: 1 == gate.total())
        assert isinstance(bench.adapter, RabbitMQAdapter)
        bench.adapter.delete(bench.mail)
        eventually(lambda: "consuming it again" in caplog.text)
        adapter = bench.adapter
        eventually(lambda: adapter.look(bench.mail) is not None)
        bench.producer.enqueue(bench.shop.Notify(1))
        eventually(lambda: 1 == len(notified.runs))
        gate.open.set()
    assert {"a": 1} == gate.runs
    assert 0 == worker.handle().settle_failures()


def test_a_closed_channel_is_opened_again(through_proxy: tuple[Bench, Proxy]) -> None:
    """Its jobs run again, those of the other queue do not."""
    bench, _ = through_proxy
    gate, notified = Gate(), Script()
    handlers = {bench.shop.Charge: gate, bench.shop.Notify: notified}
    _enqueue(bench, "a")
    with bench.working(handlers, concurrency=2, reconnect=_soon()) as worker:
        eventually(lambda: 1 == gate.total())
        [consumer] = bench.backend._consumers  # type: ignore[attr-defined]
        [channel] = [one for one in consumer._session.channels if one.queue == bench.orders]
        consumer._call(lambda: channel.channel.basic_ack(999))
        eventually(lambda: 2 == gate.total())
        gate.open.set()
        bench.producer.enqueue(bench.shop.Notify(1))
        eventually(lambda: 1 == len(notified.runs))
        eventually(lambda: 1 == worker.handle().settle_failures())
    assert {"a": 2} == gate.runs
    assert 0 == bench.adapter.ready(bench.orders)


def test_a_stop_while_the_broker_is_away_ends_at_once(
    through_proxy: tuple[Bench, Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    """It does not wait for the next dial, and it is no error."""
    bench, proxy = through_proxy
    caplog.set_level(logging.INFO)
    with bench.working({}, reconnect=Backoff("15m")):
        eventually(lambda: " consuming " in caplog.text)
        proxy.refuse()
        eventually(lambda: "connecting again in 900s" in caplog.text)
        started = time.monotonic()
    assert time.monotonic() - started < 5
    proxy.accept()


def test_a_job_that_ends_while_the_broker_is_away_is_counted(
    through_proxy: tuple[Bench, Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    """A stop awaits it, its settle fails, and it is back on its queue."""
    bench, proxy = through_proxy
    gate = Gate()
    _enqueue(bench, "a")
    with bench.working({bench.shop.Charge: gate}, reconnect=Backoff("15m")) as worker:
        eventually(lambda: 1 == gate.total())
        proxy.refuse()
        eventually(lambda: "connecting again" in caplog.text)
        worker.handle().shutdown()
        gate.open.set()
    assert 1 == worker.handle().settle_failures()
    eventually(lambda: 1 == bench.adapter.ready(bench.orders))
    proxy.accept()


def test_the_first_connection_is_not_retried(through_proxy: tuple[Bench, Proxy]) -> None:
    """A wrong address is told at once."""
    bench, proxy = through_proxy
    worker = bench.worker({bench.shop.Charge: Script()}, reconnect=_soon())
    proxy.refuse()
    with pytest.raises(BrokerUnavailable):
        worker.run()
    proxy.accept()


def test_each_wait_is_longer_until_it_is_back(
    through_proxy: tuple[Bench, Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    """The backoff grows with each failure, is told in the log, and begins anew after a success."""
    bench, proxy = through_proxy
    caplog.set_level(logging.INFO)
    handler = Script()

    def has_run(times: int) -> None:
        _enqueue(bench, "a")
        eventually(lambda: times <= len(handler.runs))

    with bench.working({bench.shop.Charge: handler}, reconnect=Backoff("100ms", max="400ms")):
        for times in (1, 2):
            has_run(times)
            caplog.clear()
            proxy.refuse()
            eventually(lambda: caplog.text.count("connecting again in 400ms") > 1)
            assert 1 == caplog.text.count("connecting again in 100ms")
            assert 1 == caplog.text.count("connecting again in 200ms")
            proxy.accept()
        has_run(3)
    assert "guest:guest" not in caplog.text


def test_a_drain_that_is_cut_ends_empty(through_proxy: tuple[Bench, Proxy]) -> None:
    """What was delivered and lost is not waited for."""
    bench, proxy = through_proxy
    gate = Gate()
    _enqueue(bench, *(str(n) for n in range(20)))
    worker = bench.worker({bench.shop.Charge: gate}, concurrency=2, reconnect=_soon())
    summaries: list[Any] = []
    thread = threading.Thread(target=lambda: summaries.append(worker.drain()))
    thread.start()
    eventually(lambda: 2 == gate.total())
    proxy.cut()
    gate.open.set()
    eventually(lambda: not thread.is_alive(), 30)
    assert "empty" == summaries[0].ended_by
    assert 20 == len(gate.runs)
    assert 0 == bench.adapter.ready(bench.orders)


def test_what_is_no_backoff_is_refused() -> None:
    """With the name of the argument."""
    with pytest.raises(ConfigurationError, match="reconnect"):
        Worker(MemoryBackend(), Shop, handlers=Handlers(Shop), reconnect=5)  # type: ignore[arg-type]
