"""A stop must be bounded and honest also when the broker has fallen silent under the worker."""

import threading
from typing import Any

import pytest

from queuey_sync import JobContext, QueueyError
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

    def charge(job: Any, ctx: JobContext) -> None:
        started.set()
        release.wait(10)

    def run() -> None:
        try:
            worker.run()
            ended.append(None)
        except QueueyError as error:
            ended.append(error)

    adapter = RabbitMQAdapter(broker.url, fresh_queue)
    with Proxy(broker.url) as proxy:
        adapter.backend = backend = RabbitMQBackend(proxy.url, publish_timeout="1s")
        bench = Bench(adapter, fresh_queue.prefix)
        worker = bench.worker({bench.shop.Charge: charge})
        thread = threading.Thread(target=run, name="test-run")
        thread.start()
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


def _consumers(adapter: RabbitMQAdapter, queue: str) -> int:
    return adapter._channel.queue_declare(queue, passive=True).method.consumer_count
