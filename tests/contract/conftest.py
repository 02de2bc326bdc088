"""The parameter of the suite: each backend's adapter."""

from collections.abc import Iterator

import pytest

from queuey_sync.queues import QueueConfig
from tests.contract.adapters import Adapter, MemoryAdapter, RabbitMQAdapter, SQLiteAdapter


@pytest.fixture(params=["memory", "rabbitmq", "sqlite"])
def adapter(request: pytest.FixtureRequest) -> Iterator[Adapter]:
    """A backend to test, open."""
    adapter: Adapter
    if request.param == "memory":
        adapter = MemoryAdapter()
    elif request.param == "sqlite":
        adapter = SQLiteAdapter(request.getfixturevalue("tmp_path") / "jobs.db")
    else:
        url = request.getfixturevalue("amqp_url")
        adapter = RabbitMQAdapter(url, request.getfixturevalue("fresh_queue"))
    yield adapter
    adapter.close()


@pytest.fixture
def queue(adapter: Adapter) -> QueueConfig:
    """A declared, empty queue."""
    return adapter.queue()
