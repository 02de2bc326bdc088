"""What a stop is to the handlers that run: they see it in both pools, and a deadline limits it."""

import time
from functools import partial

import pytest

from queuey_sync import StopTimedOut
from tests.support.waiting import eventually
from tests.worker.script import Door, Notes, leave_at_the_stop, nap, sleep_until_stop
from tests.worker.shop import Bench, Script, gone


def test_a_running_handler_sees_the_stop(pool_bench: Bench) -> None:
    """`ctx.stopping` turns true, and a sleep of `ctx.watcher` is cut short; then it may finish."""
    bench = pool_bench
    seen = Notes[tuple[bool, bool]]()
    handler = Script(partial(sleep_until_stop, seen))
    with bench.working({bench.shop.Notify: handler}):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: handler.runs)
        started = time.monotonic()
    assert time.monotonic() - started < 10
    assert [(False, True)] == list(seen)
    assert [(1, "succeeded")] == bench.settled(bench.mail)


def test_stopping_gives_the_job_back_from_a_process_too(process_bench: Bench) -> None:
    """A handler that leaves with `Stopping` during a stop has its job back, the same attempt."""
    bench = process_bench
    handler = Script(leave_at_the_stop)
    with bench.working({bench.shop.Notify: handler}):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: handler.runs)
    assert 1 == bench.adapter.ready(bench.mail)
    assert [] == bench.dead(bench.mail)


def test_a_stop_that_takes_too_long_kills_processes(process_bench: Bench) -> None:
    """At the stop's deadline children end, jobs go back unharmed, and `run` names them."""
    bench = process_bench
    handler = Script(partial(nap, 60), partial(nap, 60))
    job_ids = [bench.producer.enqueue(bench.shop.Notify(n)) for n in range(2)]
    started = time.monotonic()
    with (
        pytest.raises(StopTimedOut, match="2 jobs still ran") as caught,
        bench.working({bench.shop.Notify: handler}, stop_deadline="300ms", concurrency=2),
    ):
        bench.until(lambda: 2 == len(handler.runs))
    assert 0.3 <= time.monotonic() - started < 10
    for job_id in job_ids:
        assert f"{job_id} (shop.Notify)" in str(caught.value)
    eventually(lambda: all(gone(pid) for pid in handler.pids))
    assert 2 == bench.adapter.ready(bench.mail)
    with bench.working({bench.shop.Notify: handler}):
        bench.until(lambda: 4 == len(handler.runs))
    assert [1, 1, 1, 1] == [run.attempt for run in handler.runs]


def test_a_stop_that_takes_too_long_leaves_threads(bench: Bench) -> None:
    """At the stop's deadline `run` returns without the thread, and its job is back on the queue.

    What the thread says of the job in the end comes too late, and is counted.
    """
    door = Door()
    handler = Script(door.wait)
    job_id = bench.producer.enqueue(bench.shop.Notify(1))
    with (
        pytest.raises(StopTimedOut, match="1 jobs still ran") as caught,
        bench.working({bench.shop.Notify: handler}, stop_deadline="300ms") as worker,
    ):
        bench.until(lambda: handler.runs)
    assert f"{job_id} (shop.Notify)" in str(caught.value)
    bench.until(lambda: 1 == bench.adapter.ready(bench.mail))
    door.open()
    bench.until(lambda: 1 == worker.handle().settle_failures())
    assert bench.settled(bench.mail) in ([], None)
    with bench.working({bench.shop.Notify: handler}):
        bench.until(lambda: 2 == len(handler.runs))
    assert [1, 1] == [run.attempt for run in handler.runs]


def test_a_stop_within_its_deadline_is_an_ordinary_one(pool_bench: Bench) -> None:
    """What ends in time is settled, and `run` returns."""
    bench = pool_bench
    handler = Script(partial(nap, 0.2))
    with bench.working({bench.shop.Notify: handler}, stop_deadline="10s"):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: handler.runs)
    assert [(1, "succeeded")] == bench.settled(bench.mail)
