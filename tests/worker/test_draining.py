"""Draining: a worker that ends when its queues are empty, and says what it did."""

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from queuey_sync import (
    BackendError,
    ConfigurationError,
    ConsumerStopped,
    Deferred,
    DrainSummary,
    Fatal,
    QueueyError,
    Retryable,
    Worker,
)
from tests.contract.adapters import RabbitMQAdapter
from tests.worker.script import Door, nap
from tests.worker.shop import Bench, Script


def _drain(bench: Bench, worker: Worker[Any], **limits: Any) -> DrainSummary:
    """Drain in a thread, while time passes on the memory backend."""
    drained: Future[DrainSummary] = Future()

    def run() -> None:
        try:
            drained.set_result(worker.drain(**limits))
        except BaseException as error:
            drained.set_exception(error)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(run)
        try:
            bench.until(drained.done, "the drain is over", timeout=30)
        finally:
            worker.handle().shutdown()
    return drained.result()


def _counts(summary: DrainSummary, queue: str) -> dict[str, int | None]:
    counted = summary.queues[queue]
    return {name: getattr(counted, name) for name in ("succeeded", "retried", "deferred", "dead")}


def test_it_ends_when_all_is_done(every_bench: Bench) -> None:
    """Every job of every queue has run once; nothing is left, and the sums agree."""
    bench = every_bench
    handler = Script()
    bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(150)])
    bench.producer.enqueue_many([bench.shop.Notify(n) for n in range(50)])
    worker = bench.worker({bench.shop.Charge: handler, bench.shop.Notify: handler})
    summary = _drain(bench, worker)
    assert "empty" == summary.ended_by
    assert 200 == len(handler.runs) == len({run.job_id for run in handler.runs})
    assert [150, 50, 0] == [queue.succeeded for queue in summary.queues.values()]
    assert [0, 0, 0] == [queue.left for queue in summary.queues.values()]
    assert [bench.orders, bench.mail, bench.audit] == list(summary.queues)
    assert 0 == bench.adapter.ready(bench.orders) == bench.adapter.ready(bench.mail)
    assert 0 == worker.handle().settle_failures()
    assert 200 == summary.total("succeeded")
    assert 0 < summary.seconds < 30


def test_empty_queues_end_it_at_once(every_bench: Bench) -> None:
    """There is nothing to wait for."""
    summary = _drain(every_bench, every_bench.worker({every_bench.shop.Charge: Script()}))
    assert ("empty", 0) == (summary.ended_by, summary.total("succeeded"))
    assert summary.seconds < 3


def test_no_queues_end_it_at_once(bench: Bench) -> None:
    """A worker of no queues has drained them."""
    summary = bench.worker({bench.shop.Charge: Script()}, queues=[]).drain()
    assert ("empty", {}) == (summary.ended_by, summary.queues)


def test_the_last_job_is_awaited(every_bench: Bench) -> None:
    """A queue with nothing ready is not empty while its last job runs here."""
    bench = every_bench
    handler = Script(partial(nap, 1.5))
    bench.producer.enqueue(bench.shop.Notify(1))
    summary = _drain(bench, bench.worker({bench.shop.Notify: handler}))
    assert {"succeeded": 1, "retried": 0, "deferred": 0, "dead": 0} == _counts(summary, bench.mail)
    assert 0 == bench.adapter.ready(bench.mail)


def test_each_end_is_counted(every_bench: Bench) -> None:
    """Successes, retries, deferrals, dead letters and bodies that are no envelopes, by queue."""
    bench = every_bench
    steps = [None, Retryable("x"), Deferred("1s"), Fatal("x"), None]
    bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(5)])
    bench.producer.enqueue(bench.shop.Notify(1))
    bench.adapter.publish_raw(bench.mail, b"no envelope")
    handlers = {bench.shop.Charge: Script(*steps), bench.shop.Notify: Script()}
    summary = _drain(bench, bench.worker(handlers, concurrency=1))
    expected = {"succeeded": 2, "retried": 1, "deferred": 1, "dead": 1}
    assert expected == _counts(summary, bench.orders)
    assert {"succeeded": 1, "retried": 0, "deferred": 0, "dead": 1} == _counts(summary, bench.mail)
    assert "empty" == summary.ended_by  # what is held counts as emptied, and is told
    known = None if isinstance(bench.adapter, RabbitMQAdapter) else 2
    assert known == summary.queues[bench.orders].held


def test_held_jobs_are_awaited_if_asked(bench: Bench) -> None:
    """Retries and deferrals that come due in time are run before it ends."""
    handler = Script(Deferred("1s"), Retryable("x"))
    bench.producer.enqueue(bench.shop.Charge("ada"))
    summary = _drain(bench, bench.worker({bench.shop.Charge: handler}), wait_held="20s")
    assert 3 == len(handler.runs)
    expected = {"succeeded": 1, "retried": 1, "deferred": 1, "dead": 0}
    assert ("empty", expected) == (summary.ended_by, _counts(summary, bench.orders))


def test_held_jobs_that_come_due_too_late_are_left(bench: Bench) -> None:
    """It does not wait for them, and the next drain does not need to know."""
    handler = Script(Deferred("90s"))
    bench.producer.enqueue(bench.shop.Charge("ada"))
    summary = bench.worker({bench.shop.Charge: handler}).drain(wait_held="1s")
    assert ("empty", 1) == (summary.ended_by, len(handler.runs))
    known = None if isinstance(bench.adapter, RabbitMQAdapter) else 1
    assert (0, known) == (summary.total("left"), summary.queues[bench.orders].held)


@pytest.mark.parametrize("round_", range(20))
def test_a_follow_up_on_another_queue_is_drained_too(bench: Bench, round_: int) -> None:
    """The last job of one queue enqueues onto another one, looked at already or not."""
    one, other = bench.shop.Charge("ada"), bench.shop.Notify(1)
    first, second = (one, other) if round_ % 2 else (other, one)
    followed = Script()

    def follow(_: Any) -> None:
        bench.producer.enqueue(second)

    bench.producer.enqueue(first)
    summary = _drain(bench, bench.worker({type(first): follow, type(second): followed}))
    assert (1, 2) == (len(followed.runs), summary.total("succeeded"))


@pytest.mark.parametrize("round_", range(10))
def test_a_burst_is_drained_whole(bench: Bench, round_: int) -> None:
    """What the broker is still handing over when it says that nothing is ready is not missed."""
    bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(8 + round_)])
    summary = _drain(bench, bench.worker({bench.shop.Charge: Script()}, concurrency=8))
    assert 8 + round_ == summary.queues[bench.orders].succeeded
    assert 0 == bench.adapter.ready(bench.orders)


def test_two_at_once_share_the_work(bench: Bench) -> None:
    """Each job runs once, in one of them; both end."""
    handler = Script()
    bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(300)])
    workers = [bench.worker({bench.shop.Charge: handler}) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        summaries = list(threads.map(lambda worker: worker.drain(), workers))
    assert 300 == sum(summary.total("succeeded") for summary in summaries)
    assert {1} == set(Counter(run.job_id for run in handler.runs).values())
    assert 0 == bench.adapter.ready(bench.orders)


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("max_jobs", [1, 5])
def test_a_number_of_jobs_limits_it(every_bench: Bench, concurrency: int, max_jobs: int) -> None:
    """Exactly so many are run, whatever was delivered already; the others go back."""
    bench = every_bench
    handler = Script()
    bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(12)])
    worker = bench.worker({bench.shop.Charge: handler}, concurrency=concurrency)
    summary = _drain(bench, worker, max_jobs=max_jobs)
    assert ("max-jobs", max_jobs) == (summary.ended_by, len(handler.runs))
    assert 12 - max_jobs == summary.queues[bench.orders].left == bench.adapter.ready(bench.orders)


def test_a_number_of_jobs_that_is_not_reached_ends_it_empty(bench: Bench) -> None:
    """There were fewer."""
    bench.producer.enqueue(bench.shop.Charge("ada"))
    summary = _drain(bench, bench.worker({bench.shop.Charge: Script()}), max_jobs=3)
    assert ("empty", 1) == (summary.ended_by, summary.total("succeeded"))


def test_a_time_limits_it(every_bench: Bench) -> None:
    """It takes no more after that; what runs is finished, and the rest goes back."""
    bench = every_bench
    handler = Script(always=partial(nap, 0.4))
    bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(20)])
    worker = bench.worker({bench.shop.Charge: handler}, concurrency=2)
    summary = _drain(bench, worker, max_time="1s")
    assert "max-time" == summary.ended_by
    done = summary.queues[bench.orders].succeeded
    assert 2 <= done < 20
    assert len(handler.runs) == done == 20 - bench.adapter.ready(bench.orders)


def test_a_queue_that_others_keep_filling_is_ended_by_a_limit(bench: Bench) -> None:
    """It may never be empty."""

    def again(job: Any) -> None:
        bench.producer.enqueue(job)

    bench.producer.enqueue(bench.shop.Notify(1))
    summary = _drain(bench, bench.worker({bench.shop.Notify: again}), max_time="1s")
    assert ("max-time", 1) == (summary.ended_by, bench.adapter.ready(bench.mail))


def test_a_stop_ends_it(every_bench: Bench) -> None:
    """What runs is finished and settled, and the rest goes back."""
    bench = every_bench
    door = Door()
    handler = Script(always=door.wait)
    bench.producer.enqueue_many([bench.shop.Notify(n) for n in range(5)])
    worker = bench.worker({bench.shop.Notify: handler}, concurrency=1)
    with ThreadPoolExecutor(1) as thread:
        drained = thread.submit(worker.drain)
        bench.until(lambda: handler.runs)
        worker.handle().shutdown()
        door.open()
        bench.until(drained.done)
    summary = drained.result()
    ran = len(handler.runs)  # a runner may take one more before it hears of the stop
    assert ("signal", ran) == (summary.ended_by, summary.total("succeeded"))
    assert 5 - ran == summary.total("left") == bench.adapter.ready(bench.mail)
    assert ran < 5


def test_a_handler_over_its_time_limit_does_not_hold_it(bench: Bench) -> None:
    """Its attempt was settled at the limit; the thread that nothing can end is left."""
    door = Door()
    bench.producer.enqueue(bench.shop.Notify(1))
    worker = bench.worker({bench.shop.Notify: Script(door.wait)}, job_timeout="200ms")
    summary = _drain(bench, worker)
    assert ("empty", 1) == (summary.ended_by, summary.total("dead"))
    door.open()


def test_a_backend_that_is_closed_ends_it_with_an_error(bench: Bench) -> None:
    """It cannot be known what is left."""
    door = Door()
    handler = Script(always=door.wait)
    bench.producer.enqueue_many([bench.shop.Notify(n) for n in range(3)])
    worker = bench.worker({bench.shop.Notify: handler}, concurrency=1)
    with ThreadPoolExecutor(1) as thread:
        drained = thread.submit(worker.drain)
        bench.until(lambda: handler.runs)
        bench.backend.close()
        door.open()
        bench.until(drained.done)
    with pytest.raises(ConsumerStopped):
        drained.result()


def test_a_queue_that_is_deleted_ends_it_with_an_error(bench: Bench) -> None:
    """A look at it fails, or its consumer is cancelled: either way it is the broker's doing."""
    if not isinstance(bench.adapter, RabbitMQAdapter):
        pytest.skip("queues in memory stay")
    door = Door()
    handler = Script(always=door.wait)
    bench.producer.enqueue(bench.shop.Notify(1))
    worker = bench.worker({bench.shop.Notify: handler}, concurrency=1)
    with ThreadPoolExecutor(1) as thread:
        drained = thread.submit(worker.drain)
        bench.until(lambda: handler.runs)
        bench.adapter.delete(bench.audit)
        door.open()
        bench.until(drained.done)
    with pytest.raises((ConsumerStopped, BackendError)):
        drained.result()


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"max_jobs": 0}, "max_jobs"),
        ({"max_jobs": True}, "max_jobs"),
        ({"max_time": "ten"}, "max_time"),
        ({"wait_held": -1}, "wait_held"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(
    memory_bench: Bench, limits: dict[str, Any], text: str
) -> None:
    """Before anything runs; the worker can still be used."""
    worker = memory_bench.worker({memory_bench.shop.Charge: Script()})
    with pytest.raises(ConfigurationError, match=text):
        worker.drain(**limits)
    assert "empty" == worker.drain().ended_by


def test_a_worker_drains_or_runs_once(memory_bench: Bench) -> None:
    """As `run` does."""
    worker = memory_bench.worker({memory_bench.shop.Charge: Script()})
    worker.drain()
    for again in (worker.run, worker.drain):
        with pytest.raises(QueueyError, match="runs once"):
            again()


def test_the_backend_is_closed_after_the_summary(bench: Bench) -> None:
    """The last look at the queues needs it."""
    worker = bench.worker({bench.shop.Charge: Script()}, close_backend_on_shutdown=True)
    assert 0 == worker.drain().total("left")
    assert bench.backend.is_closed()
