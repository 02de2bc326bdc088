"""The shop of the acceptance cases, on each backend and in each kind of pool."""

import signal
from collections.abc import Iterator
from typing import Literal, cast

import pytest

from tests.contract.adapters import Adapter, MemoryAdapter, RabbitMQAdapter, SQLiteAdapter
from tests.worker.shop import Bench


def _bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The shop in the place that the parameter names, such as ``memory-process``."""
    place, _, pool = request.param.partition("-")
    adapter: Adapter
    if place == "memory":
        adapter, prefix = MemoryAdapter(), "shop"
    elif place == "sqlite":
        adapter, prefix = SQLiteAdapter(request.getfixturevalue("tmp_path") / "jobs.db"), "shop"
    else:
        fresh_queue = request.getfixturevalue("fresh_queue")
        adapter = RabbitMQAdapter(request.getfixturevalue("amqp_url"), fresh_queue)
        prefix = fresh_queue.prefix
    yield Bench(adapter, prefix, cast("Literal['thread', 'process']", pool))
    adapter.close()


bench = pytest.fixture(
    _bench, name="bench", params=["memory-thread", "sqlite-thread", "rabbitmq-thread"]
)
"""In threads, on every backend."""

memory_bench = pytest.fixture(_bench, name="memory_bench", params=["memory-thread"])
"""In threads, in memory: for what only looking inside can show."""

every_bench = pytest.fixture(
    _bench, name="every_bench", params=["memory-thread", "rabbitmq-thread", "memory-process"]
)
"""In both pools, and on RabbitMQ too: there the pools differ in nothing that a broker could see."""

pool_bench = pytest.fixture(_bench, name="pool_bench", params=["memory-thread", "memory-process"])
"""In both pools, in memory."""

process_bench = pytest.fixture(_bench, name="process_bench", params=["memory-process"])
"""In child processes, in memory."""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler for SIGINT, which a shell ignores for what runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
