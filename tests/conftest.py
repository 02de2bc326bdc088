"""Fixtures for every test: brokers, fresh queue names, a clean environment, a search for leaks.

A test that needs a broker is skipped on a machine without one, and fails there when CI is set, so
that no run in CI passes by testing nothing.
"""

import multiprocessing
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pika
import pytest

from tests.support.broker import Broker
from tests.support.rabbitmq import BrokerMissing, rabbitmq_sbin
from tests.support.waiting import eventually

# Read here because the tests themselves run without any QUEUEY_ variable.
_GIVEN_URL = os.environ.get("QUEUEY_TEST_URL")
_IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")

_LEAK_SECONDS = 5.0
_PYTHONS_OWN_CHILDREN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")

_NODE_OF_THE_RUN = pytest.StashKey[list[int]]()

hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """One private node for the whole run; not to be stopped, killed or blocked by a test."""
    require_rabbitmq()
    with Broker() as node:
        pytestconfig.stash[_NODE_OF_THE_RUN] = node.pids()
        yield node


@pytest.fixture(scope="session")
def amqp_url(request: pytest.FixtureRequest) -> str:
    """A broker to use: the one of QUEUEY_TEST_URL, else `broker`."""
    if _GIVEN_URL:
        return _GIVEN_URL
    node: Broker = request.getfixturevalue("broker")
    return node.url


@pytest.fixture
def private_broker() -> Iterator[Broker]:
    """A node for this test alone, to be killed, stopped and restarted at will; costs about 5 s."""
    require_rabbitmq()
    with Broker() as node:
        yield node


def require_rabbitmq() -> None:
    """Skip the test on a laptop without RabbitMQ; fail it in CI."""
    try:
        rabbitmq_sbin()
    except BrokerMissing as error:
        if _IN_CI:
            pytest.fail(str(error))
        pytest.skip(str(error))


class FreshQueues:
    """Queue names that no other test uses; calling it gives one, and remembers it."""

    def __init__(self) -> None:
        self.prefix = f"test-{uuid.uuid4().hex[:12]}"
        self.names: list[str] = []

    def __call__(self, name: str = "q") -> str:
        """The full name of a queue of this test."""
        full_name = f"{self.prefix}.{name}"
        self.names.append(full_name)
        return full_name


@pytest.fixture
def fresh_queue(amqp_url: str, request: pytest.FixtureRequest) -> Iterator[FreshQueues]:
    """Makes full queue names; the queues and their dead-letter queues are deleted afterwards.

    Hold queues expire by themselves. On `broker`, every queue that begins with the prefix is
    deleted, so that a test may also give the prefix to a queue set.
    """
    queues = FreshQueues()
    node: Broker | None = None if _GIVEN_URL else request.getfixturevalue("broker")
    yield queues
    doomed = {name + suffix for name in queues.names for suffix in ("", ".dead")}
    if node is not None:
        listed = node.api("queues/%2F?columns=name&disable_stats=true")
        doomed |= {queue["name"] for queue in listed if queue["name"].startswith(queues.prefix)}
    if doomed:
        with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
            channel = connection.channel()
            for name in doomed:
                channel.queue_delete(name)


@pytest.fixture
def queue_prefix(fresh_queue: FreshQueues) -> str:
    """A prefix for a queue set that no other test uses; see `fresh_queue`."""
    return fresh_queue.prefix


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test as on a machine where none of our variables is set."""
    for name in list(os.environ):
        if name.startswith("QUEUEY_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _no_leaks(pytestconfig: pytest.Config) -> Iterator[None]:
    """Fail a test that leaves a thread of ours, a thread that blocks the exit, or a child."""
    threads_before = set(threading.enumerate())
    children_before = _children()
    yield

    def nothing_left() -> bool:
        threads = [
            thread.name
            for thread in set(threading.enumerate()) - threads_before
            if thread.name.startswith("queuey") or not thread.daemon
        ]
        expected = [*children_before, *pytestconfig.stash.get(_NODE_OF_THE_RUN, [])]
        children = {pid: name for pid, name in _children().items() if pid not in expected}
        assert ([], {}) == (threads, children), "threads or children left behind"
        return True

    eventually(nothing_left, _LEAK_SECONDS, "every thread and child process of the test has ended")


def _children() -> dict[int, str]:
    """The running child processes of this one, but for those that multiprocessing keeps."""
    multiprocessing.active_children()  # reaps those that have ended
    children: dict[int, str] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            command = (
                (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z" and not _lives_on(command):
            children[int(stat.parent.name)] = command
    return children


def _lives_on(command: str) -> bool:
    return any(name in command for name in _PYTHONS_OWN_CHILDREN)
