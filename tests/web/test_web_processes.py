"""Enqueueing inside web servers that fork: first use, a broker that restarts or freezes, the exit.

QUEUEY_TEST_WEB_SECONDS=60 makes the load as long as that; by default it lasts 8 seconds.
"""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.support.waiting import eventually
from tests.web.conftest import LIMIT, Answer, Command, MakeSite, gunicorn, uwsgi

pytest.importorskip("flask")
pytest.importorskip("gunicorn")

SECONDS = float(os.environ.get("QUEUEY_TEST_WEB_SECONDS", "8"))
RATE = 50
SLACK = 2.0
"""What a request may take beyond its publish: the machine may be busy."""

SERVERS = pytest.mark.parametrize("command", [gunicorn, uwsgi])


def _freeze(pid: int) -> None:
    """Stop a process; the signal takes effect a moment after it was sent."""
    os.kill(pid, signal.SIGSTOP)
    threads = [*Path(f"/proc/{pid}/task").glob("*/stat")]
    eventually(lambda: all(one.read_text().rpartition(")")[2].split()[0] == "T" for one in threads))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
def test_a_broker_restart_under_load(make_site: MakeSite, private_broker: Broker) -> None:
    """Each request that answered 200 has its job run, and none takes longer than the limit."""
    site = make_site(private_broker.url)
    site.start(gunicorn)
    count = int(RATE * SECONDS)
    began = time.monotonic()

    def request(number: int) -> Answer:
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))  # the rate of the load
        return site.enqueue(number)

    with ThreadPoolExecutor(400) as threads:
        requests = [threads.submit(request, number) for number in range(count)]
        requests[count // 2].result()
        private_broker.restart()
        answers = [one.result() for one in requests]
    taken = {answer.number for answer in answers if answer.status == 200}
    assert {200} | {answer.status for answer in answers} <= {200, 503}
    assert len({answer.body["pid"] for answer in answers}) == 2
    assert max(answer.body["took"] for answer in answers) < LIMIT + SLACK
    assert max(answer.took for answer in answers) < LIMIT + 2 * SLACK
    assert len(taken) > count // 4
    assert taken <= site.ran()


@SERVERS
def test_first_use_starts_the_thread(
    make_site: MakeSite, private_broker: Broker, command: Command
) -> None:
    """A web process has no thread of ours until it enqueues, and goes on after a restart."""
    site = make_site(private_broker.url)
    site.start(command)
    assert [] == site.get("/threads").body["names"]
    assert site.enqueue(1).status == 200
    private_broker.restart()
    again = [site.enqueue(number) for number in range(2, 12)]
    assert {200} == {answer.status for answer in again}
    assert max(answer.took for answer in again) < LIMIT + SLACK
    assert site.ran() == set(range(1, 12))


@SERVERS
def test_the_first_use_with_a_frozen_broker(
    make_site: MakeSite, private_broker: Broker, command: Command
) -> None:
    """Requests that get no answer at first fail side by side, typed, each within the limit."""
    site = make_site(private_broker.url)
    site.start(command)
    node = private_broker.pids()[-1]
    _freeze(node)
    try:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(site.enqueue, range(8)))
    finally:
        os.kill(node, signal.SIGCONT)
    assert {"BrokerUnavailable"} == {answer.body["error"] for answer in answers}
    assert max(answer.took for answer in answers) < LIMIT + SLACK
    assert site.enqueue(9).status == 200


@SERVERS
def test_exit_with_a_frozen_broker(
    make_site: MakeSite, private_broker: Broker, command: Command
) -> None:
    """A server that has enqueued ends soon, though its broker answers nothing more."""
    site = make_site(private_broker.url)
    site.start(command)
    assert site.enqueue(1).status == 200
    node = private_broker.pids()[-1]
    _freeze(node)
    try:
        assert site.stop() < LIMIT + SLACK
    finally:
        os.kill(node, signal.SIGCONT)
