"""Three nodes, quorum queues, a list of URLs: one node after another is killed under load."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from queuey_sync import Queuey, QueueyError
from tests.cli.apps.replicated import Count, Queues
from tests.cli.conftest import Commands
from tests.conftest import require_rabbitmq
from tests.support.broker import Broker
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

_QUEUE = "replicated.work"
_HOLD = "replicated.work.deferred.quorum.1000"
_GOES_ON = 30
"""Seconds after which publishing and consuming must work again."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Costs about 20 s."""
    require_rabbitmq()
    with Cluster() as nodes:
        yield nodes


class _Source:
    """Enqueues without a pause, from a thread of its own, and remembers what was confirmed."""

    def __init__(self, urls: list[str]) -> None:
        self.confirmed: list[int] = []
        """Appended to by the thread alone."""
        self.errors: list[QueueyError] = []
        self._app = Queuey(Queues, url=urls, publish_timeout="10s")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                self._app.enqueue(Count(number))
            except QueueyError as error:  # whether that one arrived is unknown
                self.errors.append(error)
            else:
                self.confirmed.append(number)
            time.sleep(0.002)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._app.close()


def _through(commands: Commands) -> set[int]:
    return {int(line) for line in commands.marks.read_text().splitlines()}


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_nodes_that_are_killed_one_after_another(commands: Commands, cluster: Cluster) -> None:
    """Nothing is lost; publishing and consuming go on within 30 s, on the nodes that are left."""
    urls = ",".join(cluster.urls)
    worker = commands.start("worker", "replicated:app", "--reconnect", QUEUEY_URL=urls)
    source = _Source(cluster.urls)

    def goes_on_without(node: Broker) -> None:
        node.kill()
        before = len(source.confirmed)
        eventually(lambda: len(source.confirmed) > before + 100, _GOES_ON, "jobs are confirmed")
        last = next(number for number in reversed(source.confirmed) if number % 5)
        eventually(lambda: last in _through(commands), _GOES_ON, "jobs run")
        node.start()
        cluster.await_members(_QUEUE)

    try:
        eventually(lambda: len(source.confirmed) > 200, 30)
        cluster.await_members(_QUEUE)
        goes_on_without(cluster.nodes[0])  # the node of all connections
        goes_on_without(cluster.leader(_QUEUE))
    finally:
        source.close()
    confirmed = set(source.confirmed)

    def everything_has_run() -> bool:
        return not confirmed - _through(commands)

    if cluster.version < (4,):
        # RabbitMQ 3.10: what a hold queue has for its next queue can stand still when the leader of
        # the hold queue is lost, until it is led by another node.
        with suppress(AssertionError):
            eventually(everything_has_run, 20)
        while not everything_has_run():
            cluster.leader(_HOLD).restart()
            cluster.await_members(_HOLD)
            with suppress(AssertionError):
                eventually(everything_has_run, 20)
    eventually(everything_has_run, 60)
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(), worker.err
