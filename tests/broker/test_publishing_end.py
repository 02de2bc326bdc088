"""Tests of the end of publishing: closing, forgetting to, and forking."""

import faulthandler
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest

from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.errors import ShutDown
from queuey_sync.queues import QueueConfig
from tests.support.proxy import Proxy
from tests.support.publishing import SECOND, Looker, MakeBackend, envelope, lose
from tests.support.waiting import eventually


def test_closed(backend: RabbitMQBackend, queue: str) -> None:
    """A closed backend says so; closing again, from several threads, is fine."""
    backend.publish(envelope(queue))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: backend.close(), range(4)))
    assert backend.is_closed()
    assert not backend.is_connected
    for use in (
        lambda: backend.publish(envelope(queue)),
        lambda: backend.publish(envelope(queue), SECOND),
        lambda: backend.defer(envelope(queue), SECOND),
        lambda: backend.publish_many([]),
        lambda: backend.declare([]),
        lambda: backend.publish_malformed(queue, b"x"),
    ):
        with pytest.raises(ShutDown, match="the rabbitmq backend is closed"):
            use()


def test_close_without_use(make_backend: MakeBackend) -> None:
    """A backend that was never used closes without dialling."""
    make_backend("amqp://127.0.0.1:1").close()


def test_close_lets_publishes_finish(
    make_backend: MakeBackend, amqp_url: str, queue: str, looker: Looker
) -> None:
    """What is under way when a close begins gets its confirm."""
    backend = make_backend(amqp_url)
    with ThreadPoolExecutor(1) as threads:
        publishing = threads.submit(backend.publish_many, [envelope(queue) for _ in range(5_000)])
        eventually(lambda: looker.count(queue) > 0)
        backend.close()
        assert {} == publishing.result()
    assert looker.count(queue) == 5_000


def test_close_wakes_a_redial(make_backend: MakeBackend, proxy: Proxy, queue: str) -> None:
    """A redial that sleeps gives up when the backend is closed, long before any limit."""
    backend = make_backend(proxy.url, publish_timeout="60s")
    backend.publish(envelope(queue))
    lose(backend, proxy)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(backend.publish, envelope(queue))
        began = time.monotonic()
        backend.close()
        with pytest.raises(ShutDown):
            waiting.result()
        assert time.monotonic() - began < 3


def test_close_ends_a_dial(
    make_backend: MakeBackend, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """A close gives up a dial that no caller waits for any more, at once and in good order."""
    proxy.drops_replies = True
    backend = make_backend(proxy.url, publish_timeout="20s")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            backend.publish(envelope("q"))
    finally:
        signal.signal(signal.SIGALRM, before)
    began = time.monotonic()
    backend.close()
    assert time.monotonic() - began < 3
    assert [] == [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


def test_forgotten_close(amqp_url: str, queue: str, looker: Looker) -> None:
    """A process that publishes and ends without closing ends at once, its jobs confirmed."""
    script = f"""
from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.envelope import Envelope
backend = RabbitMQBackend({amqp_url!r})
backend.publish(Envelope.new("t", {queue!r}, b"1"))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=20, capture_output=True, text=True, check=False
    )
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert looker.count(queue) == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork(make_backend: MakeBackend, amqp_url: str, queue: str, looker: Looker) -> None:
    """Parent and children publish after a fork, also when it fell among publishes under way."""
    backend = make_backend(amqp_url)
    backend.declare([QueueConfig(queue)])
    stop = threading.Event()
    forks, in_child = 5, 20

    def publish_on() -> int:
        count = 0
        while not stop.is_set():
            backend.publish(envelope(queue))
            count += 1
        return count

    with ThreadPoolExecutor(2) as threads:
        publishing = [threads.submit(publish_on) for _ in range(2)]
        codes = []
        for _ in range(forks):
            pid = os.fork()
            if pid == 0:
                _publish_and_exit(backend, queue, in_child)
            codes.append(os.waitpid(pid, 0)[1])
        stop.set()
        in_parent = sum(future.result() for future in publishing)
    assert [0] * forks == codes
    backend.publish(envelope(queue))
    expected = in_parent + forks * in_child + 1
    eventually(lambda: looker.count(queue) == expected)


def _publish_and_exit(backend: RabbitMQBackend, queue: str, count: int) -> None:
    code = 1
    faulthandler.dump_traceback_later(8, file=2)  # shows where a hung child hangs
    try:
        for _ in range(count - 1):
            backend.publish(envelope(queue))
        backend.publish(envelope(queue), SECOND / 1000)
        backend.close()
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)
