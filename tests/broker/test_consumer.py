"""The consumer thread against a real broker: what ends it, and what it does before it ends."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pika.exceptions import AMQPError

from queuey_sync import BackendError, BrokerUnavailable, ConsumerStopped, Handlers, Worker, connect
from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from tests.contract.adapters import RabbitMQAdapter, envelope
from tests.support.broker import Broker
from tests.support.proxy import Proxy
from tests.support.waiting import eventually
from tests.worker.shop import Bench, Script


@pytest.fixture
def bench(amqp_url: str, fresh_queue: Any) -> Iterator[Bench]:
    """The shop on RabbitMQ."""
    adapter = RabbitMQAdapter(amqp_url, fresh_queue)
    yield Bench(adapter, fresh_queue.prefix)
    adapter.close()


@pytest.fixture
def through_proxy(amqp_url: str, fresh_queue: Any) -> Iterator[tuple[Bench, Proxy]]:
    """The shop on RabbitMQ, behind a proxy that can cut its connections."""
    with Proxy(amqp_url) as proxy:
        adapter = RabbitMQAdapter(amqp_url, fresh_queue)
        adapter.backend.close()
        adapter.backend = RabbitMQBackend(proxy.url)
        yield Bench(adapter, fresh_queue.prefix), proxy
        adapter.close()


class Busy:
    """A handler that says when it runs, and ends when it is told to."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.release = threading.Event()

    def handle(self, _job: Any, _ctx: Any) -> None:
        self.started.release()
        assert self.release.wait(30)


def run_to_its_end(worker: Worker[Any], fault: Callable[[], None]) -> BaseException | None:
    """Run a worker, make a fault meanwhile in another thread, and return what `run` raised."""
    thread = threading.Thread(target=fault)
    thread.start()
    try:
        worker.run()
    except Exception as error:
        return error
    finally:
        thread.join()
    return None


def test_a_lost_connection_ends_run_after_the_running_jobs(
    through_proxy: tuple[Bench, Proxy],
) -> None:
    """Q4: `ConsumerStopped` with its cause; every job that ran unheard is counted, none is lost."""
    bench, proxy = through_proxy
    busy = Busy()
    worker = bench.worker({bench.shop.Charge: busy}, concurrency=2)
    bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(4)])

    def fault() -> None:
        assert busy.started.acquire(timeout=20)
        assert busy.started.acquire(timeout=20)
        proxy.cut()
        eventually(lambda: worker._plan.stopping.watcher().is_stopping())
        busy.release.set()

    error = run_to_its_end(worker, fault)
    assert isinstance(error, ConsumerStopped)
    assert isinstance(error.__cause__, AMQPError)
    assert 2 == worker.handle().settle_failures()
    eventually(lambda: 4 == bench.adapter.ready(bench.orders))
    again = Script()
    with bench.working({bench.shop.Charge: again}):
        bench.until(lambda: 4 == len(again.runs))
    assert [1, 1, 1, 1] == [ctx.attempt for ctx in again.runs]


def test_a_retry_is_not_published_when_its_delivery_is_lost(
    through_proxy: tuple[Bench, Proxy],
) -> None:
    """A copy whose original comes back anyway would run the job twice over."""
    bench, proxy = through_proxy

    def fail_when_told(_: Any) -> None:
        started.set()
        assert go_on.wait(20)
        raise ValueError("too late")

    started, go_on = threading.Event(), threading.Event()
    worker = bench.worker({bench.shop.Charge: Script(always=fail_when_told)}, concurrency=1)
    bench.producer.enqueue(bench.shop.Charge("ada"))

    def fault() -> None:
        assert started.wait(20)
        proxy.cut()
        eventually(lambda: worker._plan.stopping.watcher().is_stopping())
        go_on.set()

    assert isinstance(run_to_its_end(worker, fault), ConsumerStopped)
    assert 1 == worker.handle().settle_failures()
    eventually(lambda: 1 == bench.adapter.ready(bench.orders))
    assert 0 == bench.adapter.held(bench.orders)


def test_a_deleted_queue_ends_run_and_is_named(bench: Bench) -> None:
    """The broker cancels the consumer; the other queue's jobs are settled all the same."""
    busy = Busy()
    worker = bench.worker({bench.shop.Charge: busy, bench.shop.Notify: Script()})
    bench.producer.enqueue(bench.shop.Charge("ada"))

    def fault() -> None:
        assert busy.started.acquire(timeout=20)
        assert isinstance(bench.adapter, RabbitMQAdapter)
        bench.adapter.delete(bench.mail)
        eventually(lambda: worker._plan.stopping.watcher().is_stopping())
        busy.release.set()

    error = run_to_its_end(worker, fault)
    assert isinstance(error, ConsumerStopped)
    assert bench.mail == error.queue
    assert "cancelled the consumer" in str(error.__cause__)
    assert 0 == worker.handle().settle_failures()
    assert 0 == bench.adapter.ready(bench.orders)


def test_a_channel_closed_by_the_broker_ends_run(bench: Bench) -> None:
    """An acknowledgement that the broker refuses closes the channel, which pika tells nobody."""
    busy = Busy()
    worker = bench.worker({bench.shop.Charge: busy}, queues=[bench.shop.Queues.ORDERS])
    bench.producer.enqueue(bench.shop.Charge("ada"))

    def fault() -> None:
        assert busy.started.acquire(timeout=20)
        [consumer] = bench.backend._consumers  # type: ignore[attr-defined]
        [channel] = consumer._session.channels
        consumer._call(lambda: channel.channel.basic_ack(999))
        eventually(lambda: worker._plan.stopping.watcher().is_stopping())
        busy.release.set()

    error = run_to_its_end(worker, fault)
    assert isinstance(error, ConsumerStopped)
    assert "unknown delivery tag 999" in str(error.__cause__)
    assert 1 == worker.handle().settle_failures()
    eventually(lambda: 1 == bench.adapter.ready(bench.orders))


def test_a_queue_that_is_missing_fails_the_start(bench: Bench) -> None:
    """A consumer that cannot start is that error, naming the queue, and `run` ends."""
    worker = bench.worker({})
    assert isinstance(bench.adapter, RabbitMQAdapter)
    bench.adapter.delete(bench.audit)
    with pytest.raises(BackendError, match=f"cannot consume queue `{bench.audit}`.*no queue"):
        worker.run()


def test_an_unreachable_broker_fails_the_start(bench: Bench) -> None:
    """The address is in the text, and the password is not."""
    with Proxy(connectable_url(bench)) as proxy:
        backend = RabbitMQBackend(proxy.url)
        worker = Worker(backend, bench.shop.Queues, handlers=Handlers(bench.shop.Queues))
        proxy.refuse()
        with pytest.raises(BrokerUnavailable, match=r"rabbitmq at 127\.0\.0\.1") as caught:
            worker.run()
        assert "guest:guest" not in str(caught.value)
        backend.close()


def connectable_url(bench: Bench) -> str:
    """The broker's URL."""
    assert isinstance(bench.adapter, RabbitMQAdapter)
    return bench.adapter._url


def test_a_silent_broker_does_not_delay_a_stop(bench: Bench) -> None:
    """A dial that hangs is abandoned by a stop, never joined."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        backend = connect(f"amqp://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend, "declare", list)  # it would need an answer
            worker = Worker(backend, bench.shop.Queues, handlers=Handlers(bench.shop.Queues))
        accepted: list[socket.socket] = []

        def accept_and_stop() -> None:
            accepted.append(listener.accept()[0])
            worker.handle().shutdown()

        stopper = threading.Thread(target=accept_and_stop)
        stopper.start()
        started = time.monotonic()
        worker.run()
        assert time.monotonic() - started < 2
        stopper.join()
        accepted[0].close()
    eventually(lambda: "queuey-consumer" not in [t.name for t in threading.enumerate()], 20)


def test_a_stop_at_any_moment_of_the_start_is_clean(bench: Bench) -> None:
    """However early the stop comes, jobs are either done or waiting, and nothing hangs."""
    done = 0
    bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(50)])
    for moment in range(12):
        handler = Script()
        with bench.working({bench.shop.Charge: handler}) as worker:
            threading.Event().wait(moment * 0.004)
        done += len(handler.runs)
        assert 0 == worker.handle().settle_failures()
        waiting = 50 - done
        bench.until(lambda waiting=waiting: waiting == bench.adapter.ready(bench.orders))


def test_every_ack_is_delivered_before_the_connection_closes(bench: Bench) -> None:
    """Jobs that end while the worker stops are acked: nothing comes back, nothing is counted."""
    for _ in range(10):
        busy = Busy()
        bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(4)])
        with bench.working({bench.shop.Charge: busy}, concurrency=4) as worker:
            for _ in range(4):
                assert busy.started.acquire(timeout=20)
            worker.handle().shutdown()
            busy.release.set()
        assert 0 == worker.handle().settle_failures()
        assert 0 == bench.adapter.ready(bench.orders)


def test_acks_of_many_jobs_share_wake_ups(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of settlements that come before a flush cost one callback and few frames."""
    adapter = bench.adapter
    queue = adapter.queue("many", prefetch=100)
    for n in range(100):
        bench.backend.publish(envelope(queue, n))
    consumer = adapter.consume(queue)
    deliveries = [consumer.take() for _ in range(100)]
    calls: list[object] = []
    inner = consumer.consumption._call  # type: ignore[attr-defined]
    holding = threading.Event()
    inner(lambda: holding.wait(20))  # the consumer thread is busy while all are acked

    def count(callback: Callable[[], None]) -> None:
        calls.append(callback)
        inner(callback)

    monkeypatch.setattr(consumer.consumption, "_call", count)
    for delivery in deliveries:
        delivery.ack()
    assert 1 == len(calls)
    holding.set()
    consumer.end()
    assert 0 == adapter.ready(queue.full_name)


def test_r1_both_connections_carry_the_name(broker: Broker, fresh_queue: Any) -> None:
    """R1: consuming shows the connection's name to the broker, as publishing does."""
    adapter = RabbitMQAdapter(broker.url, fresh_queue, connection_name="orders-worker")
    consumer = adapter.consume(adapter.queue())
    assert consumer.consumption is not None

    def named() -> int:
        connections = broker.api("connections")
        names = [each["client_properties"].get("connection_name") for each in connections]
        return names.count("orders-worker")

    eventually(lambda: 2 == named())
    adapter.close()


def test_an_operator_who_closes_the_connection_ends_run(
    broker: Broker, fresh_queue: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker's reason is the cause, and no record holds the password."""
    caplog.set_level(logging.DEBUG)
    adapter = RabbitMQAdapter(broker.url, fresh_queue, connection_name=fresh_queue.prefix)
    bench = Bench(adapter, fresh_queue.prefix)
    worker = bench.worker({})

    def fault() -> None:
        def close_ours() -> bool:
            ours = [
                each["name"]
                for each in broker.api("connections")
                if each["client_properties"].get("connection_name") == fresh_queue.prefix
            ]
            for name in ours:
                broker.api(f"connections/{name.replace(' ', '%20').replace('>', '%3E')}", "DELETE")
            return len(ours) > 1

        eventually(close_ours, 20)

    error = run_to_its_end(worker, fault)
    assert isinstance(error, ConsumerStopped)
    assert "CONNECTION_FORCED" in str(error.__cause__)
    assert "guest:guest" not in caplog.text
    adapter.close()
