"""The parameter of the suite: each backend's adapter."""

from collections.abc import Iterator

import pytest

from queuey_sync.queues import Kind, QueueConfig
from tests.contract.adapters import Adapter, MemoryAdapter, RabbitMQAdapter, SQLiteAdapter


@pytest.fixture(params=["memory", "rabbitmq", "quorum", "sqlite"])
def adapter(request: pytest.FixtureRequest) -> Iterator[Adapter]:
    """A backend to test, open."""
    adapter: Adapter
    if request.param == "memory":
        adapter = MemoryAdapter()
    elif request.param == "sqlite":
        adapter = SQLiteAdapter(request.getfixturevalue("tmp_path") / "jobs.db")
    else:
        url, full_name = map(request.getfixturevalue, ("amqp_url", "fresh_queue"))
        kind: Kind = "quorum" if request.param == "quorum" else "classic"
        adapter = RabbitMQAdapter(url, full_name, kind=kind)
    yield adapter
    adapter.close()


@pytest.fixture
def queue(adapter: Adapter) -> QueueConfig:
    """A declared, empty queue."""
    return adapter.queue()
