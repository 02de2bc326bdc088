"""The shop of the acceptance cases, on each backend."""

from collections.abc import Iterator

import pytest

from tests.contract.adapters import Adapter, MemoryAdapter, RabbitMQAdapter
from tests.worker.shop import Bench


@pytest.fixture(params=["memory", "rabbitmq"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The shop on every backend."""
    adapter: Adapter
    if request.param == "memory":
        adapter, prefix = MemoryAdapter(), "shop"
    else:
        fresh_queue = request.getfixturevalue("fresh_queue")
        adapter = RabbitMQAdapter(request.getfixturevalue("amqp_url"), fresh_queue)
        prefix = fresh_queue.prefix
    yield Bench(adapter, prefix)
    adapter.close()


@pytest.fixture
def memory_bench() -> Iterator[Bench]:
    """The shop in memory, for what only looking inside can show."""
    adapter = MemoryAdapter()
    yield Bench(adapter, "shop")
    adapter.close()
