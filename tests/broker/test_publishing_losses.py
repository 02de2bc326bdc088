"""Tests of publishing when the broker is lost, away or silent, and of the connection."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest

from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.backends.rabbitmq.publishing.calls import Entry
from queuey_sync.backends.rabbitmq.publishing.outbox import Outbox
from queuey_sync.envelope import Envelope
from queuey_sync.errors import (
    BackendError,
    BrokerUnavailable,
    PublishRefused,
    PublishUnconfirmed,
    ShutDown,
)
from queuey_sync.queues import QueueConfig
from tests.conftest import FreshQueues
from tests.support.broker import Broker
from tests.support.proxy import Proxy
from tests.support.publishing import Looker, MakeBackend, envelope, lose
from tests.support.waiting import eventually


def test_q1_publishes_over_a_cut(
    make_backend: MakeBackend, proxy: Proxy, queue: str, looker: Looker
) -> None:
    """Q1: publishes after a cut, many at once, redial and succeed."""
    backend = make_backend(proxy.url)
    for _ in range(8):
        backend.publish(envelope(queue))
    proxy.cut()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(backend.publish, [envelope(queue) for _ in range(8)]))
    assert looker.count(queue) == 16


def test_q4_idle_loss(make_backend: MakeBackend, proxy: Proxy, queue: str, looker: Looker) -> None:
    """Q4: a connection lost while idle is noticed, and made anew by the next publish only."""
    backend = make_backend(proxy.url)
    backend.publish(envelope(queue))
    assert backend.is_connected
    proxy.cut()
    eventually(lambda: not backend.is_connected)
    backend.publish(envelope(queue))
    assert looker.count(queue) == 2


def test_sent_again_until_confirmed(
    make_backend: MakeBackend, proxy: Proxy, queue: str, looker: Looker
) -> None:
    """Lost between publish and confirm: sent again with the same message id, at least once."""
    backend = make_backend(proxy.url)
    backend.publish(first := envelope(queue))
    proxy.drops_replies = True
    second = envelope(queue)
    with ThreadPoolExecutor(1) as threads:
        publishing = threads.submit(backend.publish, second)
        eventually(lambda: looker.count(queue) == 2)
        proxy.drops_replies = False
        proxy.cut()
        publishing.result()
    ids = [str(first.job_id), str(second.job_id), str(second.job_id)]
    assert ids == looker.message_ids(queue)


def test_confirm_never_comes(
    make_backend: MakeBackend, proxy: Proxy, queue: str, looker: Looker
) -> None:
    """Without a confirm within the limit the fate is unknown; the process stays usable."""
    backend = make_backend(proxy.url, publish_timeout="500ms")
    backend.publish(envelope(queue))
    proxy.drops_replies = True
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(PublishUnconfirmed, match=f"`{queue}`") as caught:
            backend.publish(envelope(queue))
        assert caught.value.maybe_published
        assert time.monotonic() - began < 3
    proxy.drops_replies = False
    proxy.cut()
    backend.publish(envelope(queue))
    assert looker.count(queue) == 4


def test_withdrawn_is_never_sent_later(
    make_backend: MakeBackend, proxy: Proxy, queue: str, looker: Looker
) -> None:
    """While the broker is away publishes fail at their limit, each time alike, and stay unsent."""
    backend = make_backend(proxy.url, publish_timeout="300ms")
    backend.publish(kept := envelope(queue))
    lose(backend, proxy)
    for _ in range(3):
        with pytest.raises(PublishUnconfirmed, match=r"never sent.*refused") as caught:
            backend.publish(envelope(queue))
        assert not caught.value.maybe_published
    proxy.accept()
    later: list[Envelope] = []

    def works_again() -> bool:
        later.append(envelope(queue))
        return backend.publish_many(later[-1:]) == {}

    eventually(works_again)
    published = set(looker.message_ids(queue))
    assert {str(kept.job_id), str(later[-1].job_id)} <= published
    assert published <= {str(job.job_id) for job in [kept, *later]}


def test_publishes_wait_out_an_outage(
    make_backend: MakeBackend, proxy: Proxy, queue: str, looker: Looker
) -> None:
    """Publishes issued while the broker is away succeed when it is back within their limit."""
    backend = make_backend(proxy.url)
    backend.publish(envelope(queue))
    proxy.refuse()
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(backend.publish, envelope(queue)) for _ in range(4)]
        back = threading.Timer(0.5, proxy.accept)
        back.start()
        assert [None] * 4 == [future.result() for future in waiting]
        back.join()
    assert looker.count(queue) == 5


def test_lost_queues_are_declared_again(
    make_backend: MakeBackend, proxy: Proxy, fresh_queue: FreshQueues, looker: Looker
) -> None:
    """After a new connection every queue declared here is there before anything is sent."""
    name = fresh_queue()
    backend = make_backend(proxy.url)
    backend.declare([QueueConfig(name)])
    looker.channel.queue_delete(name)
    looker.channel.queue_delete(f"{name}.dead")
    proxy.cut()
    eventually(lambda: not backend.is_connected)
    backend.publish(envelope(name))
    assert (1, 0) == (looker.count(name), looker.count(f"{name}.dead"))


def test_declaring_again_is_best_effort(
    make_backend: MakeBackend,
    proxy: Proxy,
    fresh_queue: FreshQueues,
    looker: Looker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first refusal of that is logged at ERROR, the rest skipped, and publishing goes on."""
    bad, good = fresh_queue("bad"), fresh_queue("good")
    backend = make_backend(proxy.url)
    backend.declare([QueueConfig(good), QueueConfig(bad)])
    looker.channel.queue_delete(bad)
    looker.channel.queue_declare(bad, durable=True)
    proxy.cut()
    eventually(lambda: not backend.is_connected)
    backend.publish(envelope(good))
    backend.publish(envelope(good))
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert bad in errors[0]
    assert "PRECONDITION_FAILED" in errors[0]


@pytest.mark.parametrize(
    ("replace", "text"),
    [
        (("guest:guest", "guest:hunter2"), "access refused for user `guest`"),
        (("%2F", "no-such-vhost"), "vhost `no-such-vhost` refused"),
    ],
)
def test_first_connection_refused(
    make_backend: MakeBackend, amqp_url: str, replace: tuple[str, str], text: str
) -> None:
    """What the broker refuses is told at once and in clear words."""
    backend = make_backend(amqp_url.replace(*replace))
    with pytest.raises(BrokerUnavailable, match=text) as caught:
        backend.publish(envelope("q"))
    assert "hunter2" not in str(caught.value)


def test_first_connection_is_never_retried(make_backend: MakeBackend, proxy: Proxy) -> None:
    """An unreachable broker fails every waiting call at once, the first and the tenth alike."""
    backend = make_backend(proxy.url)
    proxy.refuse()
    port = proxy.url.rpartition(":")[2].partition("/")[0]
    began = time.monotonic()
    for _ in range(10):
        with pytest.raises(BrokerUnavailable, match="connection refused") as caught:
            backend.publish(envelope("q"))
        assert f"rabbitmq at 127.0.0.1:{port}, vhost `/`" in str(caught.value)
    with pytest.raises(BrokerUnavailable, match="connection refused"):
        backend.declare([QueueConfig("q")])
    assert time.monotonic() - began < 3


def test_silent_broker_holds_nobody(make_backend: MakeBackend, proxy: Proxy) -> None:
    """A broker that takes the connection and says nothing costs the limit, and close no more."""
    proxy.drops_replies = True
    backend = make_backend(proxy.url, publish_timeout="500ms")
    began = time.monotonic()
    with pytest.raises(BackendError):
        backend.publish(envelope("q"))
    with pytest.raises(BrokerUnavailable):
        backend.declare([QueueConfig("q")])
    assert time.monotonic() - began < 4
    began = time.monotonic()
    backend.close()
    assert time.monotonic() - began < 3


def test_close_while_dialling(make_backend: MakeBackend, proxy: Proxy) -> None:
    """Closing while the dial hangs is bounded, and the waiting call gets an error."""
    proxy.drops_replies = True
    backend = make_backend(proxy.url, publish_timeout="1s")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(backend.publish, envelope("q"))
        eventually(lambda: any(t.name == "queuey-publisher" for t in threading.enumerate()))
        began = time.monotonic()
        backend.close()
        assert time.monotonic() - began < 4
        with pytest.raises((BackendError, ShutDown)):
            waiting.result()


@pytest.mark.slow
def test_memory_alarm(make_backend: MakeBackend, private_broker: Broker) -> None:
    """Under an alarm publishes fail within their limit and close returns; then all flows again."""
    config = QueueConfig("q")
    backend = make_backend(private_broker.url, publish_timeout="500ms")
    closing = make_backend(private_broker.url, publish_timeout="500ms")
    backend.declare([config])
    closing.publish(envelope("q"))
    private_broker.ctl("set_vm_memory_high_watermark", "0")
    for attempt in range(10):
        began = time.monotonic()
        with pytest.raises(PublishUnconfirmed, match="low on memory"):
            (closing if attempt == 0 else backend).publish(envelope("q"))
        assert time.monotonic() - began < 5
    began = time.monotonic()
    closing.close()
    assert time.monotonic() - began < 5
    private_broker.ctl("set_vm_memory_high_watermark", "0.4")
    eventually(lambda: backend.publish_many([envelope("q")]) == {}, 30)


@pytest.mark.slow
def test_message_that_closes_the_channel(make_backend: MakeBackend) -> None:
    """A message that the broker closes the channel over is refused alone, among a hundred."""
    with Broker(conf={"max_message_size": "65536"}) as broker:
        backend = make_backend(broker.url)
        backend.declare([QueueConfig("q")])
        batch = [envelope("q") for _ in range(100)]
        batch[40] = Envelope.new("test.Job", "q", b'"' + b"x" * 100_000 + b'"')
        failures = backend.publish_many(batch)
        assert [40] == list(failures)
        assert isinstance(failures[40], PublishRefused)
        looker = Looker(broker.url)
        assert set(looker.message_ids("q")) == {
            str(job.job_id) for index, job in enumerate(batch) if index != 40
        }
        looker.connection.close()


def test_r1_connection_name(
    make_backend: MakeBackend, broker: Broker, fresh_queue: FreshQueues
) -> None:
    """R1: the broker lists the connection under its name, also a new one; unset there is none."""

    def peers(connection_name: str) -> set[str]:
        listed = broker.ctl("list_connections", "pid", "client_properties").splitlines()
        return {line.split()[0] for line in listed if connection_name in line}

    with Proxy(broker.url) as proxy:
        name = fresh_queue()
        named = make_backend(proxy.url, connection_name=name)
        named.declare([QueueConfig(name)])
        first = peers(name)
        assert first
        proxy.cut()
        named.publish(envelope(name))
        assert peers(name) - first
        named.close()
    others = peers("") - peers("connection_name")
    unnamed = make_backend(broker.url)
    unnamed.publish(envelope(name))
    assert peers("") - peers("connection_name") - others


def test_password_is_never_logged(
    make_backend: MakeBackend,
    proxy: Proxy,
    queue: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not by us and not by pika, at any level, whether the dial succeeds, fails or is cut."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="pika")
    wrong = proxy.url.replace("guest:guest", "guest:hunter2")
    with pytest.raises(BrokerUnavailable):
        make_backend(wrong).publish(envelope(queue))
    right = make_backend(proxy.url.replace("guest:guest", "guest:%67uest"))
    right.publish(envelope(queue))
    proxy.cut()
    right.publish(envelope(queue))
    proxy.refuse()
    assert "pika" in caplog.text
    assert "hunter2" not in caplog.text
    assert "guest:guest" not in caplog.text
    assert "\\x00guest\\x00" not in caplog.text


def test_a_dial_that_fails_is_told_once(
    make_backend: MakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that is away is the caller's exception, and no noise in the log."""
    with pytest.raises(BrokerUnavailable):
        make_backend("amqp://127.0.0.1:1").publish(envelope("q"))
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_idle_connection_stays_up(make_backend: MakeBackend, amqp_url: str, queue: str) -> None:
    """Heartbeats go on while nothing is published."""
    backend = make_backend(f"{amqp_url}?heartbeat=1")
    backend.publish(envelope(queue))
    time.sleep(4)  # the broker hangs up after two heartbeats that did not come
    assert backend.is_connected


def test_fault_of_our_own(
    backend: RabbitMQBackend,
    queue: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An unexpected exception fails who waits, is logged, and the next publish works."""
    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "confirmed", None)
        with pytest.raises(PublishUnconfirmed, match="NoneType") as caught:
            backend.publish(envelope(queue))
        assert caught.value.maybe_published
    assert any(record.exc_info for record in caplog.records if record.levelname == "ERROR")
    backend.publish(envelope(queue))


def test_redials_are_paced(
    make_backend: MakeBackend, amqp_url: str, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A message over which the broker hangs up each time is not sent again without a pause."""
    backend = make_backend(f"{amqp_url}?frame_max=4096", publish_timeout="2s")
    backend.publish(envelope(queue))
    too_much = pika.BasicProperties(headers={"x": "y" * 5_000})
    failures = backend._publisher.publish([Entry(queue, b"1", too_much)])
    assert isinstance(failures[0], PublishUnconfirmed)
    lost = [record for record in caplog.records if "publishes under way" in record.getMessage()]
    assert 2 <= len(lost) <= 8
    backend.publish(envelope(queue))
