"""Finding a broker: one that starts later, several of them, one that lets us not declare."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import Commands
from tests.support.broker import Broker
from tests.support.proxy import Proxy

_JOB = ("enqueue", "shop:app", "shop.Notify", '{"to":"ada"}')
_WAITS = ("--wait-for-broker", "60s")


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def later(broker: Broker) -> Iterator[Broker]:
    """A node that is not started yet."""
    node = Broker()
    yield node
    node.close()


@pytest.fixture
def away() -> str:
    """A URL at which nothing listens."""
    return f"amqp://ada:S3cretWord@127.0.0.1:{_closed_port()}/"


def test_a_broker_that_starts_after_its_worker(commands: Commands, later: Broker) -> None:
    """The wait is told once with its reason, and once at its end; then all is as ever."""
    worker = commands.start("worker", "shop:app", *_WAITS, QUEUEY_URL=later.url)
    worker.says("connection refused; waiting for it, 60s in all")
    later.start()
    worker.says("working on")
    assert 0 == commands.run(*_JOB, QUEUEY_URL=later.url).wait()
    commands.marked("told ada")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(), worker.err
    assert 1 == worker.err.count("connection refused")
    assert 1 == worker.err.count("the broker is there after")


@pytest.mark.parametrize(
    "arguments", [("worker", "shop:app"), ("drain", "shop:app"), ("declare", "shop:app"), _JOB]
)
def test_a_broker_that_does_not_come(
    commands: Commands, away: str, arguments: tuple[str, ...]
) -> None:
    """At the end of the wait it is the error that it is without one, on every command."""
    ended = commands.run(*arguments, "--wait-for-broker", "1s", QUEUEY_URL=away)
    assert 4 == ended.wait()
    waiting, error = ended.err_lines
    assert "waiting for it, 1s in all" in waiting
    assert error.startswith("queuey-sync: ")
    assert "connection refused" in error
    assert "S3cretWord" not in ended.err


def test_a_stop_ends_the_wait(commands: Commands, away: str) -> None:
    """A signal is heard at once; a worker has taken no job yet, so it leaves with 0."""
    worker = commands.start("worker", "shop:app", *_WAITS, QUEUEY_URL=away)
    worker.says("waiting for it")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(3), worker.err


def test_a_refusal_is_told_while_it_is_waited_for(shop: Commands) -> None:
    """A wrong password may be one that a starting broker does not know yet: it shows at once."""
    parts = urlsplit(shop.environment["QUEUEY_URL"])
    host = parts.netloc.rpartition("@")[2]
    url = parts._replace(netloc=f"guest:S3cretWord@{host}").geturl()
    ended = shop.run("declare", "shop:app", "--wait-for-broker", "1s", QUEUEY_URL=url)
    assert 4 == ended.wait()
    assert "access refused for user `guest`" in ended.err_lines[0]
    assert "access refused for user `guest`" in ended.err_lines[-1]
    assert "S3cretWord" not in ended.err


@pytest.mark.parametrize("between", [",", " ", ",\n "])
def test_the_first_broker_that_answers_is_used(shop: Commands, away: str, between: str) -> None:
    """A node that is down is passed over, by producers and workers alike."""
    urls = f"{away}%2F{between}{shop.environment['QUEUEY_URL']}"
    assert 0 == shop.run(*_JOB, QUEUEY_URL=urls).wait()
    drained = shop.run("drain", "shop:app", QUEUEY_URL=urls)
    assert 0 == drained.wait(), drained.err
    shop.marked("told ada")


def test_all_brokers_are_down(commands: Commands, away: str) -> None:
    """One line has the reason of each, and no password."""
    other = f"amqp://ada:S3cretWord@127.0.0.1:{_closed_port()}/"
    ended = commands.run("worker", "shop:app", "--url", f"{away},{other}")
    assert 4 == ended.wait()
    (line,) = ended.err_lines
    for url in (away, other):
        assert f"127.0.0.1:{urlsplit(url).port}, vhost `/`: connection refused" in line
    assert "S3cretWord" not in line


def test_a_worker_goes_over_to_the_next_broker(shop: Commands) -> None:
    """With `--reconnect`, the loss of its node costs a worker a moment."""
    real = shop.environment["QUEUEY_URL"]
    with Proxy(real) as first, Proxy(real) as second:
        urls = f"{first.url},{second.url}"
        worker = shop.start("worker", "shop:app", "--reconnect", QUEUEY_URL=urls)
        worker.says(f"from rabbitmq at 127.0.0.1:{urlsplit(first.url).port}")
        first.refuse()
        worker.says(f"from rabbitmq at 127.0.0.1:{urlsplit(second.url).port}")
        assert 0 == shop.run(*_JOB, QUEUEY_URL=real).wait()
        shop.marked("told ada")
        worker.send(signal.SIGTERM)
        assert 0 == worker.wait(), worker.err


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("amqps://mq/?cafile=/no/ca.pem", "cafile: /no/ca.pem: No such file or directory"),
        ("amqps://mq/,amqp://mq/", "several URLs name the nodes of one cluster"),
    ],
)
def test_a_wrong_url_is_a_wrong_command(commands: Commands, url: str, text: str) -> None:
    """What is wrong with a URL before anything is dialled ends a command with 2."""
    ended = commands.run("worker", "shop:app", "--url", url)
    assert 2 == ended.wait()
    assert text in ended.err_lines[-1]
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("scheme", ["memory:", "sqlite:///{folder}/jobs.db"])
def test_no_declare_is_for_rabbitmq(commands: Commands, scheme: str, tmp_path: Path) -> None:
    """Where nobody is kept from declaring, it is a mistake of the command line."""
    url = scheme.format(folder=tmp_path)
    ended = commands.run("worker", "shop:app", "--no-declare", QUEUEY_URL=url)
    assert 2 == ended.wait(), ended.err
    assert "--no-declare: it is for RabbitMQ only" in ended.err_lines[-1]


def test_a_worker_that_may_not_declare(shop: Commands, broker: Broker, queue_prefix: str) -> None:
    """With `--no-declare` it needs the queues and permission to read them."""
    host = urlsplit(broker.url).netloc.rpartition("@")[2]
    user = f"w-{queue_prefix}"
    broker.api(f"users/{user}", "PUT", {"password": "Pw", "tags": ""})
    rights = {"configure": "^$", "write": r"^amq\.default$", "read": ".*"}
    broker.api(f"permissions/%2F/{user}", "PUT", rights)
    try:
        url = f"amqp://{user}:Pw@{host}/%2F"
        missing = shop.run("worker", "shop:app", "--no-declare", QUEUEY_URL=url)
        assert 4 == missing.wait()
        assert "NOT_FOUND" in missing.err_lines[-1]
        assert 0 == shop.run("declare", "shop:app", QUEUEY_URL=broker.url).wait()
        refused = shop.run("worker", "shop:app", QUEUEY_URL=url)
        assert 4 == refused.wait()
        assert "ACCESS_REFUSED" in refused.err_lines[-1]
        assert 0 == shop.run(*_JOB, "--no-declare", QUEUEY_URL=url).wait()
        drained = shop.run("drain", "shop:app", "--no-declare", QUEUEY_URL=url)
        assert 0 == drained.wait(), drained.err
        shop.marked("told ada")
    finally:
        broker.api(f"users/{user}", "DELETE")
