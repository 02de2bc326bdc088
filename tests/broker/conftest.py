"""Fixtures of the tests that publish to a real broker."""

from collections.abc import Iterator
from typing import Unpack

import pytest

from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.backends.rabbitmq.options import OptionKeywords
from queuey_sync.queues import QueueConfig
from tests.conftest import FreshQueues
from tests.support.proxy import Proxy
from tests.support.publishing import Looker, MakeBackend


@pytest.fixture
def looker(amqp_url: str) -> Iterator[Looker]:
    """Looks at the broker itself, past any proxy."""
    looker = Looker(amqp_url)
    yield looker
    looker.connection.close()


@pytest.fixture
def proxy(amqp_url: str) -> Iterator[Proxy]:
    """A proxy before the broker."""
    with Proxy(amqp_url) as proxy:
        yield proxy


@pytest.fixture
def make_backend() -> Iterator[MakeBackend]:
    """Makes backends that are closed at the end of the test."""
    backends = []

    def make(url: str, **options: Unpack[OptionKeywords]) -> RabbitMQBackend:
        backends.append(RabbitMQBackend(url, **options))
        return backends[-1]

    yield make
    for backend in backends:
        backend.close()


@pytest.fixture
def backend(make_backend: MakeBackend, amqp_url: str) -> RabbitMQBackend:
    """A backend on the broker."""
    return make_backend(amqp_url)


@pytest.fixture
def queue(backend: RabbitMQBackend, fresh_queue: FreshQueues) -> str:
    """A declared queue."""
    name = fresh_queue()
    backend.declare([QueueConfig(name)])
    return name
