"""``queuey-sync queues`` as real processes: what it shows of a broker and a store, and its ends."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import Commands, Running
from tests.support.broker import Broker
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

_NOTIFY = ("enqueue", "shop:app", "shop.Notify")
_PERMISSIONS = dict.fromkeys(("configure", "write", "read"), ".*")
_NOTHING = {"ready": 0, "held": None, "dead": 0, "consumers": 0, "next_due": None}


def _enqueue(shop: Commands, *options: str, url: str | None = None) -> None:
    where = () if url is None else ("--url", url)
    assert 0 == shop.run(*_NOTIFY, '{"to":"ada"}', *where, *options).wait()


def _queues(shop: Commands, *options: str) -> dict[str, dict[str, Any]]:
    """What it says as JSON, by the last part of each name."""
    ended = shop.run("queues", "shop:app", "--json", *options)
    assert (0, "") == (ended.wait(), ended.err)
    document = json.loads(ended.out)
    assert ["queues"] == list(document)
    return {name.rpartition(".")[2]: queue for name, queue in document["queues"].items()}


def _management_url(broker: Broker, login: str = "guest:guest@") -> str:
    return broker.api_url.replace("http://", f"http://{login}").removesuffix("/api/")


@pytest.fixture
def store(commands: Commands, tmp_path: Path) -> Commands:
    """Starts commands for a shop whose queues are declared in a file."""
    commands.environment["QUEUEY_URL"] = f"sqlite:///{tmp_path}/jobs.db"
    assert 0 == commands.run("declare", "shop:app").wait()
    return commands


@pytest.fixture
def declared(shop: Commands) -> Commands:
    """Starts commands for a shop whose queues are declared on a broker."""
    assert 0 == shop.run("declare", "shop:app").wait()
    return shop


def test_a_table_for_people(declared: Commands, queue_prefix: str) -> None:
    """A line for each queue and one of totals; what RabbitMQ holds is unknown, not 0."""
    _enqueue(declared)
    _enqueue(declared, "--after", "1h")
    ended = declared.run("queues", "shop:app")
    assert (0, "") == (ended.wait(), ended.err)
    assert [
        ["queue", "ready", "held", "dead", "consumers", "next", "due"],
        [f"{queue_prefix}.orders", "0", "unknown", "0", "0", "unknown"],
        [f"{queue_prefix}.post", "1", "unknown", "0", "0", "unknown"],
        ["total", "1", "unknown", "0", "unknown"],
    ] == [line.split() for line in ended.out.splitlines()]


def test_a_document_for_programs(declared: Commands) -> None:
    """The same as one JSON document, null for what is unknown."""
    _enqueue(declared)
    assert {"orders": _NOTHING, "post": {**_NOTHING, "ready": 1}} == _queues(declared)


def test_only_the_queues_that_were_asked_for(declared: Commands) -> None:
    """By their names as a worker takes them, in the order of the question, each once."""
    assert ["post", "orders"] == list(_queues(declared, "-Q", "post,orders,post"))
    assert ["post"] == list(_queues(declared, "--queues", "post"))
    assert 2 == declared.run("queues", "shop:app", "-Q", "nope").wait()


def test_consumers_and_dead_letters(declared: Commands, queue_prefix: str) -> None:
    """A worker is a consumer of each of its queues; a job without a handler is dead."""
    worker = declared.start("worker", "shop:app", "-Q", "post")
    assert 0 == declared.run("enqueue", "shop:app", "shop.Stray", "{}").wait()

    def seen() -> bool:
        assert {
            "orders": _NOTHING,
            "post": {**_NOTHING, "dead": 1, "consumers": 1},
        } == _queues(declared)
        return True

    eventually(seen, 20)
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait()


def test_looking_changes_nothing(commands: Commands, tmp_path: Path) -> None:
    """No store is made and no queue declared by looking: the command says who does that."""
    store = tmp_path / "jobs.db"
    for text in (
        f"there is no store at {store}: the first enqueue or worker makes it",
        "queue `shop.orders` does not exist: declare it, as `queuey-sync declare`",
        "queue `shop.orders` does not exist: declare it, as `queuey-sync declare`",
    ):
        ended = commands.run("queues", "shop:app", "--url", f"sqlite:///{store}")
        assert (4, "") == (ended.wait(), ended.out)
        (line,) = ended.err_lines
        assert text in line
        store.touch()


def test_a_queue_that_is_not_declared(shop: Commands, queue_prefix: str) -> None:
    """On a broker as well: exit code 4, and what to do."""
    ended = shop.run("queues", "shop:app")
    assert (4, "") == (ended.wait(), ended.out)
    (line,) = ended.err_lines
    assert f"queue `{queue_prefix}.orders` does not exist: declare it, as `queuey-sync decl" in line


def test_a_store_knows_what_it_holds(store: Commands) -> None:
    """Exactly, and when the first of it is due."""
    earliest = datetime.now(UTC) + timedelta(minutes=5)
    _enqueue(store, "--after", "2h")
    _enqueue(store, "--after", "5m")
    latest = datetime.now(UTC) + timedelta(minutes=5)
    _enqueue(store)
    found = _queues(store)
    assert {**_NOTHING, "held": 0} == found["orders"]
    due = datetime.fromisoformat(found["post"].pop("next_due"))
    assert {"ready": 1, "held": 2, "dead": 0, "consumers": 0} == found["post"]
    assert timedelta(0) == due.utcoffset()
    assert earliest - timedelta(milliseconds=1) <= due <= latest + timedelta(milliseconds=1)
    post, total = store.run("queues", "shop:app").out.splitlines()[2:]
    assert re.fullmatch(r"shop\.post +1 +2 +0 +0  in (4m \d+|5m 0)s", post)
    assert re.fullmatch(r"total +1 +2 +0 +in (4m \d+|5m 0)s", total)


def test_management_tells_what_rabbitmq_holds(shop: Commands, broker: Broker) -> None:
    """The sum of all hold queues of each queue; the URL may be in the environment."""
    shop.environment["QUEUEY_URL"] = broker.url
    for delay in ("1h", "2h", "2h"):
        _enqueue(shop, "--after", delay)
    management = ("--management-url", _management_url(broker))

    def held() -> bool:
        found = _queues(shop, *management)
        assert (0, 3) == (found["orders"]["held"], found["post"]["held"])
        return True

    eventually(held)
    ended = shop.run("queues", "shop:app", QUEUEY_MANAGEMENT_URL=management[1])
    assert ["0", "3", "3"] == [line.split()[2] for line in ended.out.splitlines()[1:]]


@pytest.fixture
def strange_vhost(broker: Broker) -> Iterator[str]:
    """The URL of a vhost whose name must be encoded in URLs."""
    broker.api("vhosts/a%2Fb%20%C3%A9", "PUT")
    broker.api("permissions/a%2Fb%20%C3%A9/guest", "PUT", _PERMISSIONS)
    yield f"{broker.url.removesuffix('%2F')}a%2Fb%20%C3%A9"
    broker.api("vhosts/a%2Fb%20%C3%A9", "DELETE")


def test_management_of_a_vhost(shop: Commands, broker: Broker, strange_vhost: str) -> None:
    """The one of the broker's URL counts."""
    shop.environment["QUEUEY_URL"] = strange_vhost
    _enqueue(shop, "--after", "1h")
    management = ("--management-url", _management_url(broker))
    eventually(lambda: _queues(shop, *management)["post"]["held"] == 1)


def test_management_of_another_vhost(shop: Commands, broker: Broker, strange_vhost: str) -> None:
    """A user who may not see the vhost is an error, and no 0."""
    shop.environment["QUEUEY_URL"] = strange_vhost
    assert 0 == shop.run("declare", "shop:app").wait()
    broker.api("users/S3cretUser", "PUT", {"password": "S3cretWord", "tags": "management"})
    url = _management_url(broker, "S3cretUser:S3cretWord@")
    ended = shop.run("queues", "shop:app", "--management-url", url)
    broker.api("users/S3cretUser", "DELETE")
    assert (4, "") == (ended.wait(), ended.out)
    (line,) = ended.err_lines
    assert "access refused for user `S3cretUser`" in line
    assert "S3cretWord" not in line


def _closed_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("management", "text"),
    [
        ("http://guest:S3cretWord@{api}", "access refused for user `guest` (Login failed)"),
        ("http://{api}", "access refused without a user in the URL"),
        ("http://guest:S3cretWord@127.0.0.1:{closed}", ": connection refused"),
        ("http://guest:S3cretWord@nowhere.invalid:15672", ": host not found"),
        ("http://guest:S3cretWord@{amqp}", "http://127.0.0.1"),
        ("https://guest:S3cretWord@{api}", ": it does not speak TLS there"),
        ("http://guest:guest@{api}/elsewhere", ": it answered 4"),
    ],
    ids=["password", "no user", "port", "host", "AMQP", "TLS", "path"],
)
def test_a_management_url_that_does_not_work(
    shop: Commands, broker: Broker, management: str, text: str
) -> None:
    """Exit code 4 and one line, which tells the address and the reason and no password."""
    assert 0 == shop.run("declare", "shop:app", "--url", broker.url).wait()
    url = management.format(
        api=urlsplit(broker.api_url).netloc,
        amqp=urlsplit(broker.url).netloc.rpartition("@")[2],
        closed=_closed_port(),
    )
    ended = shop.run("queues", "shop:app", "--url", broker.url, QUEUEY_MANAGEMENT_URL=url)
    assert (4, "") == (ended.wait(), ended.out)
    (line,) = ended.err_lines
    assert "queuey-sync: backend error: cannot ask the management API at http" in line
    assert text in line
    assert "S3cretWord" not in line


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--url", "memory:"], "on memory: each process has queues of its own"),
        (
            ["--url", "sqlite:///jobs.db", "--management-url", "http://ada:S3cretWord@mq"],
            "--management-url: it is for RabbitMQ only",
        ),
        (
            ["--url", "amqp://mq", "--management-url", "http://ada:S3cret/Word@mq"],
            "'--management-url' (env var: 'QUEUEY_MANAGEMENT_URL'): expected http:// or https://",
        ),
    ],
    ids=["memory", "store", "URL"],
)
def test_what_cannot_be_asked(commands: Commands, arguments: list[str], text: str) -> None:
    """Exit code 2 and one line."""
    ended = commands.run("queues", "shop:app", *arguments)
    assert (2, "") == (ended.wait(), ended.out)
    (line,) = ended.err_lines
    assert text in line
    assert "cret" not in line
    assert "Word" not in line


def _looks(running: Running, times: int) -> list[dict[str, Any]]:
    """Wait until it has looked so often; what it said each time."""

    def documents() -> list[dict[str, Any]]:
        lines = running.out.splitlines()
        assert running.process.poll() is None, running.err
        return [json.loads(line) for line in lines] if len(lines) >= times else []

    return eventually(documents, 20, f"{times} looks")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_watching_goes_on_until_a_signal(store: Commands, signum: int) -> None:
    """A document a line, each a fresh look; a stop that was asked for is a success, at once."""
    watching = store.start("queues", "shop:app", "--watch", "--json")
    assert 0 == _looks(watching, 1)[0]["queues"]["shop.post"]["ready"]
    _enqueue(store)
    seen = len(watching.out.splitlines())
    assert 1 == _looks(watching, seen + 1)[-1]["queues"]["shop.post"]["ready"]
    watching.send(signum)
    assert 0 == watching.wait(1)
    assert [f"queuey-sync: received {signal.Signals(signum).name}: leaving"] == watching.err_lines


def test_watching_a_broker_that_is_lost(declared: Commands) -> None:
    """Exit code 4, and one line."""
    with Proxy(declared.environment["QUEUEY_URL"]) as proxy:
        watching = declared.start("queues", "shop:app", "--watch", "--json", QUEUEY_URL=proxy.url)
        _looks(watching, 1)
        proxy.refuse()
        assert 4 == watching.wait(10)
    (line,) = watching.err_lines
    assert "backend error: cannot look at rabbitmq at 127.0.0.1:" in line


@pytest.mark.parametrize("watch", [True, False])
def test_a_signal_while_the_broker_is_silent(commands: Commands, watch: bool) -> None:
    """It ends at once; only who watches was to be stopped, and so has succeeded."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        silent.settimeout(20)
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}/"
        options = ["--watch"] if watch else []
        looking = commands.start("queues", "shop:app", "--url", url, *options)
        with contextlib.closing(silent.accept()[0]):
            looking.send(signal.SIGTERM)
            assert (0 if watch else 128 + signal.SIGTERM) == looking.wait(2)
    assert ["queuey-sync: received SIGTERM: leaving"] == looking.err_lines


def test_watching_without_a_terminal(store: Commands) -> None:
    """Table after table, each with its time, and nothing that only a terminal understands."""
    watching = store.start("queues", "shop:app", "--watch")
    eventually(lambda: watching.out.count("total") >= 2, 20)
    watching.send(signal.SIGTERM)
    assert 0 == watching.wait(1)
    first, second, *_ = watching.out.split("\n\n")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", first.splitlines()[0])
    assert first.splitlines()[1:] == second.splitlines()[1:]
    assert "\x1b" not in watching.out


def _watch_on_a_terminal(store: Commands, lines: int, looks: int) -> list[str]:
    """Watch on a terminal of so many lines; what was drawn at each look."""
    parent, child = pty.openpty()
    watching = store.start(
        "queues", "shop:app", "--watch", stdout=child, COLUMNS="60", LINES=str(lines)
    )
    os.close(child)
    seen = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while True:
            seen += os.read(parent, 4096)
            if seen.count(b"ready") == looks:
                watching.send(signal.SIGINT)
    os.close(parent)
    assert 0 == watching.wait()
    return seen.decode().replace("\r\n", "\n").split("\x1b[", 1)


def test_watching_on_a_terminal(store: Commands) -> None:
    """Each table takes the place of the last: as many lines up as there are, and erase below."""
    first, rest = _watch_on_a_terminal(store, lines=24, looks=2)
    assert ["shop.orders", "shop.post", "total"] == [
        line.split()[0] for line in first.splitlines()[2:5]
    ]
    assert rest.startswith(f"{first.count(chr(10))}F\x1b[J")


def test_watching_on_a_small_terminal(store: Commands) -> None:
    """What is too much for it is left out, or the place of the last table would be out of reach."""
    first, rest = _watch_on_a_terminal(store, lines=4, looks=2)
    assert (3, "...") == (first.count("\n"), first.splitlines()[-1])
    assert rest.startswith("3F\x1b[J")


def test_a_reader_that_leaves(store: Commands) -> None:
    """Exit code 1 and one line, as whenever a result cannot be written."""
    watching = store.start("queues", "shop:app", "--watch", "--json", stdout=subprocess.PIPE)
    assert watching.process.stdout is not None
    assert json.loads(watching.process.stdout.readline())
    watching.process.stdout.close()
    assert 1 == watching.wait(10)
    assert ["queuey-sync: standard output cannot be written: Broken pipe"] == watching.err_lines
