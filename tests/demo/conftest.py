"""Fixtures of the demo's tests: a broker on which no demo has been, and where its code is."""

from collections.abc import Iterator

import pika
import pytest

from tests.support.source import ROOT

FOLDERS = [str(ROOT / "docs/examples"), str(ROOT)]
"""Where Python finds the demo and the library."""

_QUEUE = "queuey-demo.files"


@pytest.fixture
def url(amqp_url: str) -> Iterator[str]:
    """A broker without the demo's queues, which are there afterwards no more than before."""
    _delete_queues(amqp_url)
    yield amqp_url
    _delete_queues(amqp_url)


def _delete_queues(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for suffix in ("", ".dead", ".deferred.1000"):
            channel.queue_delete(_QUEUE + suffix)
