"""Settling calls that fail: counted, told, and the job comes back (case M8)."""

import time
from datetime import timedelta

import pytest

from queuey_sync import BackendError, Deferred, Envelope, Fatal, Retryable, SettleError
from queuey_sync.backends.memory.delivery import MemoryDelivery
from queuey_sync.worker import run
from tests.worker.shop import Bench, Script


def test_refused_settles_are_counted_and_logged(
    memory_bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """M8: a settling call that fails counts once, logs an ERROR with its name, harms nothing."""
    bench = memory_bench

    def refuse(*_: object) -> None:
        raise SettleError("no")

    for call in ("ack", "retry", "defer", "dead_letter", "release"):
        monkeypatch.setattr(MemoryDelivery, call, refuse)
    handler = Script(None, Deferred("1s"), Retryable("x"), Fatal("x"))
    with bench.working({bench.shop.Charge: handler}, concurrency=1) as worker:
        for operation, count in [("ack", 1), ("defer", 2), ("retry", 3), ("dead_letter", 4)]:
            bench.producer.enqueue(bench.shop.Charge("ada"))
            bench.until(lambda count=count: count == worker.handle().settle_failures())
            record = caplog.records[-1]
            assert "ERROR" == record.levelname
            assert record.getMessage().startswith(f"{operation} failed for job ")


def test_a_queue_that_can_deliver_no_more_ends_the_worker(
    memory_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies that cannot be placed keep their prefetch slots: the worker ends, not starves."""
    bench = memory_bench

    def refuse(*_: object) -> None:
        raise BackendError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDelivery, "retry", refuse)
        worker = bench.worker({bench.shop.Charge: Script(always=Retryable("x"))}, concurrency=1)
        bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(5)])
        with pytest.raises(BackendError, match=r"`shop\.orders` delivers no more: 4 jobs"):
            worker.run()
    assert 4 == worker.handle().settle_failures()
    assert 5 == bench.adapter.ready(bench.orders)


def test_what_could_not_be_settled_is_given_back_after_a_while(
    memory_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job runs again at the same attempt, and is settled when that works again."""
    bench = memory_bench
    monkeypatch.setattr(run, "_GIVE_BACK_AFTER", 0.3)
    real, refused = MemoryDelivery.retry, list[float]()

    def refuse_twice(delivery: MemoryDelivery, copy: Envelope, delay: timedelta) -> None:
        if len(refused) < 2:
            refused.append(time.monotonic())
            raise BackendError("no room")
        real(delivery, copy, delay)

    monkeypatch.setattr(MemoryDelivery, "retry", refuse_twice)
    handler = Script(Retryable("x"), Retryable("x"), Retryable("x"))
    with bench.working({bench.shop.Charge: handler}, concurrency=1) as worker:
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: len(handler.runs) == 4)
    assert [1, 1, 1, 2] == [ctx.attempt for ctx in handler.runs]
    assert 2 == worker.handle().settle_failures()
    assert refused[1] - refused[0] >= 0.3
    assert 0 == bench.adapter.ready(bench.orders)
