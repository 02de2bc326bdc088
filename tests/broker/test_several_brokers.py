"""Several URLs: each dial tries every broker once, and a silent one leaves time for the next."""

import time

import pytest

from queuey_sync.errors import BrokerUnavailable
from queuey_sync.queues import QueueConfig
from tests.conftest import FreshQueues
from tests.support.proxy import Proxy
from tests.support.publishing import Looker, MakeBackend, envelope, lose


def test_a_silent_broker_leaves_time_for_the_next(
    make_backend: MakeBackend, fresh_queue: FreshQueues, proxy: Proxy, amqp_url: str, looker: Looker
) -> None:
    """All of them share the time limit of one call, so the call succeeds at the second."""
    proxy.drops_replies = True
    backend = make_backend([proxy.url, amqp_url], publish_timeout="4s")
    name = fresh_queue()
    backend.declare([QueueConfig(name)])
    backend.publish(envelope(name))
    assert 1 == looker.count(name)


def test_a_publisher_goes_over_to_the_next(
    make_backend: MakeBackend, fresh_queue: FreshQueues, proxy: Proxy, amqp_url: str, looker: Looker
) -> None:
    """The publish after the loss of its broker is placed by another one."""
    backend = make_backend([proxy.url, amqp_url])
    name = fresh_queue()
    backend.declare([QueueConfig(name)])
    lose(backend, proxy)
    backend.publish(envelope(name))
    assert 1 == looker.count(name)


def test_no_broker_answers(make_backend: MakeBackend, proxy: Proxy) -> None:
    """The error has the reason of each, and comes within the time limit."""
    proxy.drops_replies = True
    backend = make_backend([proxy.url, "amqp://127.0.0.1:1/%2F"], publish_timeout="2s")
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable) as caught:
        backend.declare([QueueConfig("q")])
    assert time.monotonic() - began < 4
    text = str(caught.value)
    assert "no answer in time" in text
    assert "rabbitmq at 127.0.0.1:1, vhost `/`: connection refused" in text
    assert "guest:guest" not in text


def test_a_backend_is_closed_while_it_dials(make_backend: MakeBackend, proxy: Proxy) -> None:
    """No further broker is tried once nobody waits."""
    proxy.drops_replies = True
    backend = make_backend([proxy.url] * 3, publish_timeout="3s")
    with pytest.raises(BrokerUnavailable):
        backend.declare([QueueConfig("q")])
    began = time.monotonic()
    backend.close()
    assert time.monotonic() - began < 3
