"""``queuey-sync move``: all of a store goes over to a real broker, whatever comes in between."""

import json
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from queuey_sync.backends.base import Inbox
from queuey_sync.backends.sqlite.backend import SQLiteBackend
from queuey_sync.envelope import Envelope
from queuey_sync.queues import QueueConfig
from tests.cli.conftest import Commands, Running
from tests.support.listening import Deaf
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

HOUR = timedelta(hours=1)
TOGETHER = 200
"""The most that one death can have in hand."""


class Place:
    """A store, and what of it has arrived on the broker."""

    def __init__(self, path: Path, shop: Commands, prefix: str) -> None:
        self.shop = shop
        self.path = path
        self.url = f"sqlite:///{path}"
        self.orders, self.post = QueueConfig(f"{prefix}.orders"), QueueConfig(f"{prefix}.post")
        self.store = SQLiteBackend(self.url)
        self.store.declare([self.orders, self.post])
        url = shop.environment["QUEUEY_URL"]
        self.channel = pika.BlockingConnection(pika.URLParameters(url)).channel()

    def close(self) -> None:
        self.store.close()
        self.channel.connection.close()

    def envelope(self, queue: QueueConfig, number: int = 0, priority: int = 0) -> Envelope:
        payload = f'{{"to":"{number}"}}'.encode()
        return Envelope.new("shop.Notify", queue.full_name, payload, priority=priority)

    def kill_one(self, envelope: Envelope, reason: str) -> None:
        """Have it die in the store."""
        config = self.orders if envelope.queue == self.orders.full_name else self.post
        self.store.publish(envelope)
        inbox = Inbox()
        consumption = self.store.consume([config], inbox, Deaf())
        delivery = inbox.get(timeout=10)
        assert delivery is not None
        delivery.dead_letter(reason)
        consumption.stop(0)
        consumption.close()

    def sql(self, statement: str) -> Any:
        with closing(sqlite3.connect(self.path, timeout=10)) as file, file:
            return file.execute(statement).fetchone()[0]

    def left(self) -> int:
        """How many jobs the store holds."""
        return sum(self.sql(f"SELECT count(*) FROM {table}") for table in ("jobs", "held", "dead"))

    def start(self, *options: str, **settings: Any) -> Running:
        target = settings.pop("to", self.shop.environment["QUEUEY_URL"])
        arguments = ("move", "shop:app", "--from", self.url, "--to", target, *options)
        return self.shop.start(*arguments, **settings)

    def move(self, *options: str, **settings: Any) -> Running:
        running = self.start(*options, **settings)
        running.wait()
        return running

    def take(self, queue: str) -> list[tuple[bytes, dict[str, Any]]]:
        """Take all that is on a queue of the broker."""
        found: list[tuple[bytes, dict[str, Any]]] = []
        while True:
            method, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if method is None or body is None or properties is None:
                return found
            found.append((body, dict(properties.headers or {})))

    def take_held(self) -> list[tuple[bytes, dict[str, Any]]]:
        """Take all that is held on the broker for an hour, or for some seconds less."""
        found = []
        for seconds in range(3_540, 3_601):
            queue = f"{self.post.full_name}.deferred.{seconds}000"
            with suppress(ChannelClosedByBroker):
                self.channel.connection.channel().queue_declare(queue, passive=True)
                found += self.take(queue)
        return found


@pytest.fixture
def place(tmp_path: Path, shop: Commands, queue_prefix: str) -> Iterator[Place]:
    """A store with the shop's queues, beside a broker that does not have them yet."""
    place = Place(tmp_path / "jobs.db", shop, queue_prefix)
    yield place
    place.close()


def test_all_of_it_arrives_as_it_was(place: Place) -> None:
    """Bodies, order, levels, due times and reasons; then the store is empty, and so is a move."""
    waiting = [place.envelope(place.orders, n) for n in range(3)]
    first = place.envelope(place.orders, 3, priority=10)
    retry = place.envelope(place.post, 4).next_attempt()
    due = place.envelope(place.post, 5)
    dead = place.envelope(place.post, 6)
    place.store.publish_many([*waiting, first])
    place.store.publish(retry, HOUR)
    place.kill_one(dead, "fatal error: no address")
    place.sql(
        "INSERT INTO dead (queue, died_ms, reason, body) SELECT queue, died_ms,"
        " 'malformed envelope', 'no envelope' FROM dead RETURNING 1"
    )
    place.store.publish(due, timedelta(milliseconds=1))
    time.sleep(0.01)  # until `due` is due
    moved = place.move()
    assert 0 == moved.wait(), moved.err
    assert "moved 8 jobs: 4 waiting, 2 held, 2 dead\n" == moved.out
    assert [one.encode() for one in (first, *waiting)] == [
        body for body, _ in place.take(place.orders.full_name)
    ]
    assert [due.encode()] == [body for body, _ in place.take(place.post.full_name)]
    [(body, headers)] = place.take(f"{place.post.full_name}.deferred.3600000")
    assert (retry.encode(), 2) == (body, headers["x-attempt"])
    [(body, headers), (malformed, why)] = place.take(f"{place.post.full_name}.dead")
    assert (dead.encode(), "fatal error: no address") == (body, headers["x-death-reason"])
    assert (b"no envelope", "malformed envelope") == (malformed, why["x-death-reason"])
    assert 0 == place.left()
    again = place.move("--json")
    document = {"moved": {"waiting": 0, "held": 0, "dead": 0}, "left": {}}
    assert (0, document) == (again.wait(), json.loads(again.out))


def _killed(place: Place, seconds: float) -> bool:
    """Start a move and kill it so long after its first batch; False when it was done by then."""
    before = place.left()
    move = place.start()
    eventually(lambda: move.process.poll() is not None or place.left() < before, 20)
    time.sleep(seconds)
    if move.process.poll() is not None:
        return False
    move.process.kill()
    move.process.wait()
    return True


def test_killed_again_and_again(place: Place) -> None:
    """Every job arrives; only what a killed move had in hand arrives twice."""
    sent = [place.envelope(place.orders, n) for n in range(4_000)]
    held = [place.envelope(place.post, n) for n in range(1_000)]
    place.store.publish_many(sent)
    for one in held:
        place.store.publish(one, HOUR)
    rng, kills = random.Random(7), 0
    while _killed(place, rng.random() * 0.1):
        kills += 1
    assert 0 == place.move().wait()
    assert kills > 3
    assert "ok" == place.sql("PRAGMA integrity_check")
    ready, later = place.take(place.orders.full_name), place.take_held()
    for wanted, arrived in ((sent, ready), (held, later)):
        found = Counter(Envelope.decode(body).job_id for body, _ in arrived)
        assert {one.job_id for one in wanted} == set(found)
        assert found.total() - len(found) <= kills * TOGETHER


def test_a_stop_finishes_what_is_in_hand(place: Place) -> None:
    """SIGTERM ends it with 6; nothing is twice."""
    place.store.publish_many([place.envelope(place.orders, n) for n in range(20_000)])
    move = place.start()
    eventually(lambda: place.left() < 20_000)
    move.send(signal.SIGTERM)
    assert 6 == move.wait(), move.err
    left = place.left()
    assert f"left on {place.orders.full_name}: {left} waiting\n" in move.out
    assert 0 < left < 20_000
    declared = place.channel.queue_declare(place.orders.full_name, passive=True).method
    assert 20_000 == left + declared.message_count


def test_what_a_worker_has_in_hand_stays(place: Place) -> None:
    """It is told, with an exit code of 6, and can be moved when the worker is gone."""
    place.store.publish_many([place.envelope(place.orders, n) for n in range(3)])
    inbox = Inbox()
    config = QueueConfig(place.orders.full_name, prefetch=1)
    consumption = place.store.consume([config], inbox, Deaf())
    assert inbox.get(timeout=10) is not None
    moved = place.move()
    assert 6 == moved.wait()
    assert "moved 2 jobs" in moved.out
    assert f"left on {place.orders.full_name}: 1 leased\n" in moved.out
    consumption.stop(0)
    consumption.close()
    assert 0 == place.move().wait()
    assert 3 == len(place.take(place.orders.full_name))


def test_what_the_broker_cannot_hold_stays(place: Place) -> None:
    """A delay that is too long for it, and queues that the app does not have, are told."""
    far = place.envelope(place.post)
    place.store.publish(far, timedelta(days=30))
    place.store.publish(place.envelope(place.post), HOUR)
    place.store.declare([QueueConfig("old")])
    place.store.publish(Envelope.new("old", "old", b"{}"))
    moved = place.move()
    assert 6 == moved.wait()
    assert "moved 1 jobs: 0 waiting, 1 held, 0 dead" in moved.out
    assert f"left on {place.post.full_name}: 1 held\n" in moved.out
    assert "left on old: 1 waiting, and the app has no such queue\n" in moved.out
    assert str(far.job_id) in moved.err
    assert "longer than a hold queue can wait" in moved.err


def test_a_broker_that_goes_away(place: Place) -> None:
    """The command ends with 4; what was not confirmed is still in the store."""
    sent = [place.envelope(place.orders, n) for n in range(20_000)]
    place.store.publish_many(sent)
    with Proxy(place.shop.environment["QUEUEY_URL"]) as proxy:
        move = place.start(to=proxy.url)
        eventually(lambda: place.left() < 20_000)
        proxy.refuse()
        assert 4 == move.wait(40), move.err
        proxy.accept()
    assert "Traceback" not in move.err
    assert 0 < place.left() < 20_000
    assert 0 == place.move().wait()
    found = Counter(Envelope.decode(body).job_id for body, _ in place.take(place.orders.full_name))
    assert {one.job_id for one in sent} == set(found)
    assert found.total() - len(found) <= TOGETHER


@pytest.mark.parametrize(
    ("source", "target", "code", "text"),
    [
        ("amqp://ada:S3cretWord@mq/", "amqp://mq/", 2, "--from: expected sqlite:///path"),
        ("sqlite:///{0}/jobs.db", "sqlite:///x.db", 2, "--to: expected amqp://"),
        ("sqlite:///{0}/jobs.db", "amqp://ada:S3cretWord@mq:port/", 2, "--to: it cannot be read"),
        ("sqlite:///{0}/jobs.db?colour=red", "amqp://mq/", 2, "--from: "),
        ("sqlite:///{0}/none.db", "amqp://127.0.0.1:1/", 4, "there is no store at"),
        ("sqlite:///{0}/text.db", "amqp://127.0.0.1:1/", 4, "text.db"),
        ("sqlite:///{0}/jobs.db", "amqp://ada:S3cretWord@127.0.0.1:1/", 4, "connection refused"),
    ],
)
def test_what_cannot_be_moved(
    commands: Commands, tmp_path: Path, source: str, target: str, code: int, text: str
) -> None:
    """One line, a true exit code, no password and no new file."""
    store = SQLiteBackend(f"sqlite:///{tmp_path}/jobs.db")
    store.declare([QueueConfig("shop.orders")])
    store.close()
    (tmp_path / "text.db").write_text("this is no store, but a text" * 100)
    ended = commands.run("move", "shop:app", "--from", source.format(tmp_path), "--to", target)
    assert code == ended.wait()
    [line] = ended.err_lines
    assert text in line
    assert "S3cretWord" not in line
    assert not (tmp_path / "none.db").exists()
