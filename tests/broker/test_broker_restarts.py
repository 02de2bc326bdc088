"""Faults of a whole broker, under a worker with and without reconnecting; each has its own node."""

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuey_sync import Backoff, ConsumerStopped, Deferred, Retryable
from queuey_sync.worker import run
from tests.contract.adapters import RabbitMQAdapter
from tests.support.broker import Broker
from tests.support.waiting import eventually
from tests.worker.shop import Bench, Gate, Script

_SOON = Backoff("100ms", max="1s")
_BOTH = pytest.mark.parametrize("reconnect", [None, _SOON], ids=["default", "reconnect"])


class Tally:
    """A handler that takes a moment, and counts the runs of each customer."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        """Guarded by `_lock`."""
        self._lock = threading.Lock()

    def handle(self, job: Any, _ctx: Any) -> None:
        time.sleep(0.01)
        with self._lock:
            self.runs[job.customer] += 1

    def count(self) -> int:
        with self._lock:
            return len(self.runs)


Connect = Callable[..., Bench]
"""Makes a shop on the node of the test; takes the options of the backend."""


@pytest.fixture
def connect(private_broker: Broker) -> Iterator[Connect]:
    """The shops are closed at the end of the test, however that comes."""
    adapters: list[RabbitMQAdapter] = []

    def make(**options: Any) -> Bench:
        adapters.append(RabbitMQAdapter(private_broker.url, str, **options))
        return Bench(adapters[-1], "test-faults")

    yield make
    for adapter in adapters:
        adapter.close()


def _enqueue(bench: Bench, *customers: str) -> None:
    bench.producer.enqueue_many([bench.shop.Charge(customer) for customer in customers])


@pytest.mark.parametrize("kind", ["stop", "kill"])
def test_a_restart_ends_a_worker_that_is_not_to_reconnect(
    private_broker: Broker, connect: Connect, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Under load; the next worker finds all that is left."""
    bench = connect()
    tally = Tally()
    _enqueue(bench, *(str(number) for number in range(500)))
    with (  # noqa: PT012 - the worker's error is raised when its block ends
        pytest.raises(ConsumerStopped),
        bench.working({bench.shop.Charge: tally.handle}),
    ):
        eventually(lambda: tally.count() > 50)
        getattr(private_broker, kind)()
        eventually(lambda: "the worker ends" in caplog.text)
    assert tally.count() < 500
    private_broker.start()
    again = connect()
    with again.working({again.shop.Charge: tally.handle}):
        eventually(lambda: tally.count() == 500, 60)
    assert 0 == again.adapter.ready(again.orders)


@pytest.mark.parametrize("kind", ["stop", "kill"])
def test_a_restart_is_healed_by_reconnecting(
    private_broker: Broker, connect: Connect, kind: str
) -> None:
    """Under load; every job that was confirmed runs."""
    bench = connect()
    tally = Tally()
    with bench.working({bench.shop.Charge: tally.handle}, reconnect=_SOON):
        _enqueue(bench, *(str(number) for number in range(500)))
        eventually(lambda: tally.count() > 50)
        getattr(private_broker, kind)()
        private_broker.start()
        eventually(lambda: tally.count() == 500, 60)
        _enqueue(bench, "last")
        eventually(lambda: tally.count() == 501, 30)


@_BOTH
def test_b3_a_job_over_the_brokers_own_limit(
    private_broker: Broker,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    reconnect: Backoff | None,
) -> None:
    """Report 3: the worker goes on, the job is named, and its neighbours run twice at most."""
    setting = "application:set_env(rabbit, {}, {})."
    private_broker.ctl("eval", setting.format("channel_tick_interval", 1000))
    private_broker.ctl("eval", setting.format("consumer_timeout", 3000))
    caplog.set_level(logging.INFO)
    bench = connect()
    gate, notified = Gate(), Script(Deferred("5s"))
    neighbours = Tally()

    def charge(job: Any, ctx: Any) -> None:
        if job.customer == "late":
            gate.handle(job, ctx)
        else:
            neighbours.handle(job, ctx)

    handlers = {bench.shop.Charge: charge, bench.shop.Notify: notified}
    with bench.working(handlers, concurrency=4, reconnect=reconnect) as worker:
        [job_id] = bench.producer.enqueue_many([bench.shop.Charge("late")])
        # Its wait is longer than the limit, and is on the broker: nothing is held unsettled.
        bench.producer.enqueue(bench.shop.Notify(1))
        number = 0
        while "acknowledgement timeout" not in caplog.text:
            number += 1
            _enqueue(bench, str(number))
            eventually(lambda: neighbours.runs[str(number)] > 0)  # noqa: B023 - called at once
            time.sleep(0.1)
        gate.open.set()
        eventually(lambda: gate.runs["late"] == 2)
        eventually(lambda: len(notified.runs) == 2)
        # A neighbour that ended at that very moment has lost its ack, too.
        eventually(lambda: worker.handle().settle_failures() > 0)
    assert 2 >= max(neighbours.runs.values())
    assert [0, 1] == [ctx.deferrals for ctx in notified.runs]
    [record] = [one for one in caplog.records if "acknowledgement timeout" in one.getMessage()]
    assert "ERROR" == record.levelname
    assert str(job_id) in record.getMessage()
    assert "consumer_timeout" in record.getMessage()
    assert 0 == bench.adapter.ready(bench.orders)


def test_b6_a_connection_that_the_broker_drops(private_broker: Broker, connect: Connect) -> None:
    """Report 6: what ran runs once more, and no ack ever reaches the new connection."""
    bench = connect(connection_name="dropped")
    gate = Gate()
    _enqueue(bench, "a", "b")

    def drop() -> bool:
        ours = [
            each["name"]
            for each in private_broker.api("connections")
            if each["client_properties"].get("connection_name") == "dropped"
        ]
        for name in ours:
            path = f"connections/{name.replace(' ', '%20').replace('>', '%3E')}"
            private_broker.api(path, "DELETE")
        return len(ours) > 1

    with bench.working({bench.shop.Charge: gate}, concurrency=2, reconnect=_SOON) as worker:
        eventually(lambda: gate.total() == 2)
        eventually(drop, 20)
        _enqueue(bench, "c", "d")
        gate.open.set()
        eventually(lambda: gate.total() == 6)
        eventually(lambda: worker.handle().settle_failures() == 2)
    assert {"a": 2, "b": 2, "c": 1, "d": 1} == gate.runs
    assert 2 == worker.handle().settle_failures()
    assert 0 == bench.adapter.ready(bench.orders)
    log = "".join(file.read_text() for file in (private_broker.folder / "log").glob("*.log"))
    assert not re.search("unknown delivery tag", log)


@pytest.mark.slow
def test_b17_a_worker_under_a_memory_alarm(
    private_broker: Broker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report 17: acks go on, a retry waits, a stop ends; then all flows without a restart."""
    monkeypatch.setattr(run, "_GIVE_BACK_AFTER", 1.0)
    bench = connect(publish_timeout="1s")
    begin = threading.Event()
    done: list[tuple[str, int]] = []

    def charge(job: Any, ctx: Any) -> None:
        assert begin.wait(30)
        if job.customer == "fails" and ctx.attempt == 1:
            raise Retryable("once more")
        done.append((job.customer, ctx.attempt))

    _enqueue(bench, "fails", "works")
    with bench.working({bench.shop.Charge: charge}, concurrency=2) as worker:
        private_broker.ctl("set_vm_memory_high_watermark", "0")
        begin.set()
        eventually(lambda: done == [("works", 1)])
        # Each time its copy finds no room it is kept for a while, given back, and tried again.
        eventually(lambda: worker.handle().settle_failures() >= 2, 20)
        assert [("works", 1)] == done
        private_broker.ctl("set_vm_memory_high_watermark", "0.4")
        eventually(lambda: ("fails", 2) in done, 30)
    assert [("works", 1), ("fails", 2)] == done
    assert 0 == bench.adapter.ready(bench.orders) == bench.adapter.held(bench.orders)


def test_a_stop_under_a_memory_alarm(private_broker: Broker, connect: Connect) -> None:
    """It ends within the time limit of a publish, and the job is on its queue."""
    bench = connect(publish_timeout="1s")
    begin, began = threading.Event(), threading.Event()

    def charge(_job: Any, _ctx: Any) -> None:
        began.set()
        assert begin.wait(30)
        raise Retryable("once more")

    _enqueue(bench, "fails")
    with bench.working({bench.shop.Charge: charge}) as worker:
        assert began.wait(20)
        private_broker.ctl("set_vm_memory_high_watermark", "0")
        worker.handle().shutdown()
        begin.set()
        stopped = time.monotonic()
    assert time.monotonic() - stopped < 10
    private_broker.ctl("set_vm_memory_high_watermark", "0.4")
    eventually(lambda: bench.adapter.ready(bench.orders) == 1)
