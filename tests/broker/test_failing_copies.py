"""Report 5: a copy that cannot be placed never costs the job, for retries and for dead letters.

The worker's consumer goes straight to the broker, and what it publishes through a proxy, so that a
test can break the one and watch the other.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import pika
import pytest

from queuey_sync import Fatal, JobContext, Retryable, RetryPolicy
from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.backends.rabbitmq.publishing.outbox import Declares
from queuey_sync.envelope import Envelope
from tests.conftest import FreshQueues
from tests.contract.adapters import RabbitMQAdapter
from tests.support.broker import Broker
from tests.support.proxy import Proxy
from tests.support.waiting import eventually
from tests.worker.shop import Bench

_ERRORS = {"retry": Retryable("flaky"), "dead_letter": Fatal("bad input")}
_SUFFIXES = {"retry": ".deferred.60000", "dead_letter": ".dead"}


class Stage:
    """A shop on a broker that can be broken, and the queue that copies go to."""

    def __init__(
        self, adapter: RabbitMQAdapter, prefix: str, broker: Broker, proxy: Proxy, operation: str
    ) -> None:
        self._adapter = adapter
        self.backend = RabbitMQBackend(broker.url)
        self.backend._publisher = RabbitMQBackend(proxy.url, publish_timeout="2s")._publisher
        adapter.backend = self.backend
        self.bench = bench = Bench(adapter, prefix)
        self.broker = broker
        self.proxy = proxy
        self.operation = operation
        self.copies = bench.orders + _SUFFIXES[operation]

    def held_copies(self) -> int:
        """How many copies have arrived; 0 too without their queue."""
        return self._adapter.look(self.copies) or 0

    def originals(self) -> int:
        """How many jobs wait on their own queue."""
        return self._adapter.ready(self.bench.orders)

    def unacked(self) -> int:
        """How many jobs are in the hands of the worker; half a second late."""
        state = self.broker.api(f"queues/%2F/{self.bench.orders}")
        return int(state.get("messages_unacknowledged", 0))

    def place(self, customer: str) -> None:
        """Put a job on its queue, past the proxy."""
        payload = b'{"customer":"%s"}' % customer.encode()
        job = Envelope.new("shop.Charge", self.bench.orders, payload)
        self._adapter.publish_raw(self.bench.orders, job.encode())

    def delete_copies(self) -> None:
        """Delete the queue that copies go to; from any thread, so by a connection of its own."""
        with pika.BlockingConnection(pika.URLParameters(self.broker.url)) as connection:
            connection.channel().queue_delete(self.copies)


@pytest.fixture(params=["retry", "dead_letter"])
def operation(request: pytest.FixtureRequest) -> str:
    """What the worker wants to do with the job."""
    return str(request.param)


@pytest.fixture
def stage(broker: Broker, fresh_queue: FreshQueues, operation: str) -> Iterator[Stage]:
    """The shop, whole for now."""
    with Proxy(broker.url) as proxy:
        adapter = RabbitMQAdapter(broker.url, fresh_queue)
        yield Stage(adapter, fresh_queue.prefix, broker, proxy, operation)
        adapter.close()


Breaking = Callable[[Stage], AbstractContextManager[None]]


@contextmanager
def deleted(stage: Stage) -> Iterator[None]:
    """The queue vanishes right before the publish; the hold queue after it was declared."""
    landed, doomed = Declares.landed, [stage.copies]

    def landed_and_deleted(declares: Declares) -> Any:
        entries = landed(declares)
        if entries and doomed:
            doomed.pop()
            stage.delete_copies()
        return entries

    stage.delete_copies()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Declares, "landed", landed_and_deleted)
        yield


@contextmanager
def refusing(stage: Stage) -> Iterator[None]:
    """The queue is full, and says so."""
    policy = f"policies/%2F/{stage.copies}"
    definition = {"max-length": 0, "overflow": "reject-publish"}
    pattern = f"^{stage.copies}$".replace(".", r"\.")
    body = {"pattern": pattern, "definition": definition, "apply-to": "queues"}
    stage.broker.api(policy, "PUT", body)
    yield
    stage.broker.api(policy, "DELETE")


@contextmanager
def cut(stage: Stage) -> Iterator[None]:
    """The connection is lost between the publish and its confirm."""
    stage.backend._publisher._limit = timedelta(seconds=20)
    with silent(stage):
        yield
        eventually(lambda: stage.held_copies() == 1)
        eventually(lambda: stage.unacked() == 1, message="the original is not acked meanwhile")
        assert 0 == stage.originals()
    stage.proxy.cut()


@contextmanager
def silent(stage: Stage) -> Iterator[None]:
    """The broker takes the publish, and its confirm never arrives."""
    landed = Declares.landed

    def landed_and_silent(declares: Declares) -> Any:
        stage.proxy.drops_replies = True
        return landed(declares)

    with pytest.MonkeyPatch.context() as patch:
        if stage.operation == "retry":  # then the answer to the declaration has to come through
            patch.setattr(Declares, "landed", landed_and_silent)
        else:
            stage.proxy.drops_replies = True
        yield
    stage.proxy.drops_replies = False


class Outcome(NamedTuple):
    """What must be true in the end."""

    failures: int
    copies: int
    originals: int


_HEALED, _KEPT = Outcome(0, 1, 0), Outcome(1, 0, 1)


@pytest.mark.parametrize(
    ("breaking", "outcomes"),
    [
        (deleted, {"retry": _HEALED, "dead_letter": _KEPT}),
        (refusing, {"retry": _KEPT, "dead_letter": _KEPT}),
        (cut, dict.fromkeys(_ERRORS, Outcome(0, 2, 0))),
        (silent, dict.fromkeys(_ERRORS, Outcome(1, 1, 1))),
    ],
    ids=["deleted", "refusing", "cut", "silent"],
)
def test_a_copy_that_cannot_be_placed(
    stage: Stage,
    operation: str,
    breaking: Breaking,
    outcomes: dict[str, Outcome],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The job stays until its copy is confirmed; the failure is counted, and other jobs go on."""
    expected = outcomes[operation]
    done: list[str] = []

    def charge(job: Any, ctx: JobContext) -> None:
        if job.customer == "unlucky":
            raise _ERRORS[operation]
        done.append(job.customer)

    policy = RetryPolicy.fixed(2, "60s")
    options = {"job_retry_overrides": {stage.bench.shop.Charge: policy}}
    with stage.bench.working({stage.bench.shop.Charge: charge}, **options) as worker:
        with breaking(stage):
            stage.place("unlucky")
            stage.place("lucky")
            eventually(lambda: done == ["lucky"])
            if expected.failures:
                eventually(lambda: worker.handle().settle_failures() == 1)
        eventually(lambda: stage.held_copies() == expected.copies)
    actual = Outcome(worker.handle().settle_failures(), stage.held_copies(), stage.originals())
    assert expected == actual
    logged = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert expected.failures == sum(
        f"{operation} failed for job" in each.message for each in logged
    )
