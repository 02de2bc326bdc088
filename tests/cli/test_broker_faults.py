"""A broker that cannot be reached, refuses, or is lost: exit code 4, one line, and no password."""

import contextlib
import socket
from typing import Any
from urllib.parse import quote, urlsplit

import pika
import pytest

from tests.cli.conftest import Commands
from tests.support.broker import Broker
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

_JOB = ("enqueue", "shop:app", "shop.Notify", '{"to":"ada"}')
_COMMANDS = pytest.mark.parametrize(
    "arguments",
    [("worker", "shop:app"), _JOB, ("declare", "shop:app")],
    ids=["worker", "enqueue", "declare"],
)


def _with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"guest:{password}@{host}").geturl()


@_COMMANDS
def test_a_wrong_password(shop: Commands, arguments: tuple[str, ...]) -> None:
    """A refused login is told with the user's name, and never with the password."""
    url = _with_password(shop.environment["QUEUEY_URL"], "S3cretWord")
    ended = shop.run(*arguments, "-l", "DEBUG", QUEUEY_URL=url)
    assert 4 == ended.wait()
    assert "`guest`" in ended.err_lines[-1]
    assert "Traceback" not in ended.err
    assert 1 == len([line for line in ended.err_lines if line.startswith("queuey-sync: ")])
    assert "S3cretWord" not in ended.err + ended.out


@_COMMANDS
def test_a_broker_that_is_not_there(commands: Commands, arguments: tuple[str, ...]) -> None:
    """A refused connection ends every command at once, with one line that names the address."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    ended = commands.run(*arguments, "--url", f"amqp://ada:S3cretWord@127.0.0.1:{port}/")
    assert 4 == ended.wait()
    (line,) = ended.err_lines
    assert f"127.0.0.1:{port}" in line
    assert "S3cretWord" not in ended.err + ended.out


def test_the_url_of_the_command_line_counts(commands: Commands) -> None:
    """An app that was used while it was imported goes to the broker of the command line after."""
    url = "amqp://127.0.0.1:1/"
    ended = commands.run("declare", "fed:app", "--url", url, QUEUEY_URL="memory:")
    assert 4 == ended.wait()
    assert "127.0.0.1:1" in ended.err


def test_the_password_is_in_no_log(shop: Commands) -> None:
    """Nothing that a worker logs about its broker, at any level, holds the password."""
    url = _with_password(shop.environment["QUEUEY_URL"], "guest")
    worker = shop.start("worker", "shop:app", "-l", "DEBUG", QUEUEY_URL=url)
    worker.says("working on")
    assert ":guest@" not in worker.err


def _close_connections(broker: Broker, name: str) -> None:
    for connection in broker.api("connections"):
        properties: dict[str, Any] = connection.get("client_properties") or {}
        if properties.get("connection_name") == name:
            broker.api(f"connections/{quote(connection['name'], safe='')}", "DELETE")


def test_a_connection_that_the_broker_closes(
    shop: Commands, broker: Broker, queue_prefix: str
) -> None:
    """A worker whose connection is closed ends with 4; it tells the queue and the reason."""
    worker = shop.start("worker", "shop:app", QUEUEY_URL=broker.url)
    worker.says("working on")

    def ended() -> bool:
        _close_connections(broker, queue_prefix)  # the API may not know the consumer's at once
        return worker.process.poll() is not None

    eventually(ended, 20)
    assert 4 == worker.wait(), worker.err
    line = worker.err_lines[-1]
    assert f"queuey-sync: consumer for queue `{queue_prefix}.orders` stopped unexpectedly" in line
    assert "CONNECTION_FORCED" in line
    assert "Traceback" not in worker.err


def test_a_connection_that_breaks(shop: Commands) -> None:
    """A worker whose connection is cut ends with 4."""
    with Proxy(shop.environment["QUEUEY_URL"]) as proxy:
        worker = shop.start("worker", "shop:app", QUEUEY_URL=proxy.url)
        assert 0 == shop.run(*_JOB).wait()
        shop.marked("told ada")  # so it consumes
        proxy.cut()
        assert 4 == worker.wait(10), worker.err
    assert "stopped unexpectedly" in worker.err_lines[-1]
    assert "Traceback" not in worker.err


def test_a_queue_that_differs(shop: Commands, queue_prefix: str) -> None:
    """A queue that exists with other properties ends `declare` with 4 and the broker's words."""
    url = shop.environment["QUEUEY_URL"]
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare(f"{queue_prefix}.orders", durable=True)
    ended = shop.run("declare", "shop:app")
    assert 4 == ended.wait()
    (line,) = ended.err_lines
    assert "PRECONDITION_FAILED" in line
    assert "" == ended.out


def test_declare(shop: Commands, queue_prefix: str) -> None:
    """The queues exist afterwards, and their names are on standard output; again is fine."""
    for _ in range(2):
        ended = shop.run("declare", "shop:app")
        assert 0 == ended.wait(), ended.err
        assert f"{queue_prefix}.orders\n{queue_prefix}.post\n" == ended.out
        assert "" == ended.err
    url = shop.environment["QUEUEY_URL"]
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare(f"{queue_prefix}.post.dead", passive=True)
