"""A stop must be bounded and honest also when the broker has fallen silent under the worker."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from queuey_sync import JobContext, QueueyError, Worker
from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from tests.conftest import FreshQueues
from tests.contract.adapters import RabbitMQAdapter
from tests.support.broker import Broker
from tests.support.proxy import Proxy
from tests.support.waiting import eventually
from tests.worker.shop import Bench


@pytest.mark.parametrize("direction", ["drops_requests", "drops_replies"])
def test_a_stop_while_the_broker_is_silent(
    broker: Broker, fresh_queue: FreshQueues, direction: str
) -> None:
    """`run` ends within seconds, and reports no success for a job that the broker still has."""
    started, release = threading.Event(), threading.Event()
    ended: list[QueueyError | None] = []
    adapter = RabbitMQAdapter(broker.url, fresh_queue)
    with Proxy(broker.url) as proxy:
        adapter.backend = backend = RabbitMQBackend(proxy.url, publish_timeout="1s")
        bench = Bench(adapter, fresh_queue.prefix)
        worker = bench.worker({bench.shop.Charge: _until(started, release)})
        thread = _start(worker, ended)
        try:
            bench.producer.enqueue(bench.shop.Charge("ada"))
            assert started.wait(10)
            setattr(proxy, direction, True)
            worker.handle().shutdown()
            release.set()
            eventually(lambda: ended, 8, "run() ended")
        finally:
            proxy.refuse()
            thread.join()
            backend.close()
    eventually(lambda: _consumers(adapter, bench.orders) == 0)
    came_back = adapter.ready(bench.orders)
    adapter.close()
    assert not came_back or ended != [None] or worker.handle().settle_failures() == 1


def test_an_idle_worker_stops_soon_under_a_frozen_broker(
    private_broker: Broker, fresh_queue: FreshQueues, caplog: pytest.LogCaptureFixture
) -> None:
    """With nothing to settle or publish there is nothing to wait for, but it is told."""
    caplog.set_level(logging.INFO)
    adapter = RabbitMQAdapter(private_broker.url, fresh_queue)
    bench = Bench(adapter, fresh_queue.prefix)
    worker = bench.worker({}, close_backend_on_shutdown=True)
    ended: list[QueueyError | None] = []
    thread = _start(worker, ended)
    eventually(lambda: " consuming " in caplog.text)
    with _frozen(private_broker):
        began = time.monotonic()
        worker.handle().shutdown()
        thread.join()
        took = time.monotonic() - began
    adapter.close()
    assert took < 4
    assert isinstance(ended[0], QueueyError)


def test_an_idle_producer_closes_soon_under_a_frozen_broker(
    private_broker: Broker, fresh_queue: FreshQueues
) -> None:
    """All is confirmed, so nothing is owed to a broker that agrees to no goodbye."""
    backend = RabbitMQBackend(private_broker.url)
    adapter = RabbitMQAdapter(private_broker.url, fresh_queue)
    adapter.backend.close()
    adapter.backend = backend
    Bench(adapter, fresh_queue.prefix)
    assert backend.is_connected
    with _frozen(private_broker):
        began = time.monotonic()
        backend.close()
        took = time.monotonic() - began
    adapter.close()
    assert took < 1.5


def test_a_settlement_is_worth_a_longer_wait(
    private_broker: Broker, fresh_queue: FreshQueues
) -> None:
    """A broker that freezes for less than 5 s during a stop still gets the last acknowledgement."""
    started, release = threading.Event(), threading.Event()
    ended: list[QueueyError | None] = []
    adapter = RabbitMQAdapter(private_broker.url, fresh_queue)
    bench = Bench(adapter, fresh_queue.prefix)
    worker = bench.worker({bench.shop.Charge: _until(started, release)})
    thread = _start(worker, ended)
    bench.producer.enqueue(bench.shop.Charge("ada"))
    assert started.wait(10)
    with _frozen(private_broker):
        worker.handle().shutdown()
        release.set()
        thread.join(2.5)
        assert thread.is_alive()
    thread.join()
    eventually(lambda: _consumers(adapter, bench.orders) == 0)
    left = adapter.ready(bench.orders)
    adapter.close()
    assert (ended, left, worker.handle().settle_failures()) == ([None], 0, 0)


def _until(started: threading.Event, release: threading.Event) -> Callable[[Any, JobContext], None]:
    """A handler that says that it runs, and goes on until it is released."""

    def handle(job: Any, ctx: JobContext) -> None:
        started.set()
        release.wait(10)

    return handle


def _start(worker: Worker[Any], ended: list[QueueyError | None]) -> threading.Thread:
    """Run a worker in a thread; what `run` ended with goes into the list."""

    def run() -> None:
        try:
            worker.run()
            ended.append(None)
        except QueueyError as error:
            ended.append(error)

    thread = threading.Thread(target=run, name="test-run")
    thread.start()
    return thread


@contextmanager
def _frozen(broker: Broker) -> Iterator[None]:
    """The broker takes connections and bytes, and does nothing with them."""
    node = broker.pids()[-1]
    os.kill(node, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node, signal.SIGCONT)


def _consumers(adapter: RabbitMQAdapter, queue: str) -> int:
    return adapter._channel.queue_declare(queue, passive=True).method.consumer_count
