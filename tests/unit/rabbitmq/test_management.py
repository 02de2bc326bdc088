"""The management API: which URLs can be used, what is made of its answers, and sums of hold queues.

How a real one answers is in ``tests/cli/test_queues.py``.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from queuey_sync.backends.rabbitmq.dialling import brokers_of
from queuey_sync.backends.rabbitmq.management import Management, held
from queuey_sync.backends.rabbitmq.options import Options
from queuey_sync.backends.rabbitmq.topology import Topology
from queuey_sync.errors import BackendError, BrokerUnavailable, ConfigurationError

_TOPOLOGY = Topology(Options())
(_PARAMETERS,) = brokers_of("amqp://mq/sh%2Fop")


@contextmanager
def _answering(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """A server that gives everybody this answer; its URL, and the requests and logins it got."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.path.partition('?')[0]} {self.headers['authorization']}")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://ada:S3cret%2F@127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "url",
    [
        "mq:15672",
        "ftp://ada:S3cret@mq",
        "http://",
        "http://ada:S3cret@",
        "http://ada:S3cret@mq:port",
        "http://ada:S3cret@mq:99999",
        "http://ada:S3cret@mq:0",
        "http://ada:S3/cret@mq:15672",
        "http://ada:1/S3cret@mq:15672",
        "http://ada:1?S3cret@mq:15672",
        "http://ada:1#S3cret@mq:15672",
        "http://ada:S3 cret@mq:15672",
        "http://ada:S3cret@mq:15672\n",
        "http://ada:S3cret@m..q:15672",
        "http://ada:S3cret@[::1:15672",
    ],
)
def test_a_url_that_cannot_be_used(url: str) -> None:
    """It is refused before anything is sent, and nothing of the password is repeated."""
    with pytest.raises(ConfigurationError, match=r"^management_url: expected http") as refused:
        Management(url)
    assert "cret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_the_request() -> None:
    """Path and vhost are as the URLs say, with user and password decoded and encoded again."""
    body = json.dumps([{"name": "q", "messages": 3}, {"name": "down"}]).encode()
    with _answering(200, body) as (url, seen):
        assert {"q": 3, "down": None} == Management(f"{url}/mq/").messages(_PARAMETERS)
    assert ["/mq/api/queues/sh%2Fop Basic YWRhOlMzY3JldC8="] == seen


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"a": 1}', b'[{"a": 1}]', b"[null]"])
def test_an_answer_that_is_none(body: bytes) -> None:
    """What is no list of queues does not come from RabbitMQ."""
    with (
        _answering(200, body) as (url, _),
        pytest.raises(BackendError, match="not RabbitMQ") as refused,
    ):
        Management(url).messages(_PARAMETERS)
    assert "S3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (401, b'{"error": "x", "reason": "Login failed"}', "refused for user `ada` (Login failed)"),
        (401, b"", "access refused for user `ada` (Unauthorized)"),
        (404, b'{"reason": "no\\n\\u001bvhost"}', "it answered 404 (no\\n\\x1bvhost)"),
        (500, b"[]", "it answered 500 (Internal Server Error)"),
    ],
)
def test_a_refusal(status: int, body: bytes, text: str) -> None:
    """It is told in one line, with the words of the broker if there are any."""
    with _answering(status, body) as (url, _), pytest.raises(BackendError) as refused:
        Management(url).messages(_PARAMETERS)
    assert text in str(refused.value)
    assert "about vhost `sh/op`" in str(refused.value)


def test_a_redirect_is_not_followed() -> None:
    """The login is sent nowhere else."""
    with _answering(200, b"[]") as (elsewhere, seen_elsewhere):
        location = elsewhere.replace("ada:S3cret%2F@", "")
        with (
            _answering(301, b"", location=location) as (url, seen),
            pytest.raises(BackendError, match="it answered 301"),
        ):
            Management(url).messages(_PARAMETERS)
    assert (1, []) == (len(seen), seen_elsewhere)


def test_an_answer_that_is_cut_short() -> None:
    """It is a lost connection, and no list."""
    headers = {"content-length": "100"}
    with (
        _answering(200, b"[", **headers) as (url, _),
        pytest.raises(BrokerUnavailable, match="no whole answer"),
    ):
        Management(url).messages(_PARAMETERS)


def test_hold_queues_are_summed_by_their_queue() -> None:
    """What only looks like one is not counted; a queue that was not asked for does not matter."""
    messages: dict[str, int | None] = {
        "mail": 100,
        "mail.dead": 100,
        "mail.deferred.1000": 1,
        "mail.deferred.30000": 2,
        "mail.deferred": 100,
        "mail.deferred.": 100,
        "mail.deferred.1s": 100,
        "mail.deferred.²": 100,
        "mail.deferred.1000.dead": 100,
        "mail.deferredx.1000": 100,
        "fast.mail": 0,
        "fast.mail.deferred.1000": 4,
        "other.deferred.1000": None,
    }
    assert [3, 4, 3] == held(messages, ["mail", "fast.mail", "mail"], _TOPOLOGY)


@pytest.mark.parametrize("first", [None, 5])
def test_a_hold_queue_that_nobody_can_count(first: int | None) -> None:
    """Makes the sum unknown, whatever the others hold: never 0, and never too little."""
    messages = {"q": 0, "q.deferred.1": first, "q.deferred.2": None, "q.deferred.3": 7, "p": 0}
    assert [None, 0] == held(messages, ["q", "p"], _TOPOLOGY)


def test_the_suffix_is_that_of_the_backend() -> None:
    """Names follow the options, as everywhere."""
    topology = Topology(Options(deferred_suffix="-later.5"))
    messages = {"q": 0, "q-later.5.1000": 1, "q.deferred.1000": 10, "q-later.50.1000": 10}
    assert [1] == held(messages, ["q"], topology)


def test_the_api_of_another_broker() -> None:
    """A queue that is not listed there is an error that names it; it has not got 0 jobs."""
    with pytest.raises(BackendError, match="`q`: it is that of another broker"):
        held({"q.deferred.1000": 1}, ["q"], _TOPOLOGY)
