"""Child processes: what they can be given, what their death costs, and when they are replaced.

In processes alone: a thread cannot die, wear out or be limited in memory by itself.
"""

import gc
import logging
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from queuey_sync import ProcessPool
from tests.support.waiting import eventually
from tests.worker.script import crash, devour, kill, leave, leave_at_first, nap
from tests.worker.sendable import KINDS
from tests.worker.shop import Bench, Script, gone

PANICKED = "max attempts (1) exhausted after attempt 1: handler panicked"


@pytest.mark.parametrize("handler", KINDS.values(), ids=KINDS)
def test_handlers_of_every_kind_cross_to_a_child(process_bench: Bench, handler: Any) -> None:
    """What a child can import or unpickle runs there, called as in a thread."""
    bench = process_bench
    with bench.working({bench.shop.Notify: handler}):
        bench.producer.enqueue(bench.shop.Notify(7))
        bench.until(lambda: bench.dead(bench.mail))
    [(_, reason)] = bench.dead(bench.mail)
    told, pid = reason.rsplit(" ", 1)
    assert "fatal error: told 7 in" == told
    assert os.getpid() != int(pid)


@pytest.mark.parametrize(
    ("step", "death"), [(kill, "signal 9"), (crash, "signal 11"), (leave, "exit code 3")]
)
def test_a_death_is_one_failed_attempt_of_its_own_job(
    process_bench: Bench, step: Any, death: str
) -> None:
    """A job that kills its child ends as its policy says, with the way of the death as reason."""
    bench = process_bench
    deadly, good = Script(step, step), Script()
    with bench.working({bench.shop.Chase: deadly, bench.shop.Charge: good}, concurrency=1):
        bench.producer.enqueue(bench.shop.Chase(1))
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: bench.dead(bench.mail))
    reason = f"max attempts (2) exhausted after attempt 2: handler panicked: process died ({death})"
    assert [(2, reason)] == bench.dead(bench.mail)
    assert [1, 2] == [run.attempt for run in deadly.runs]
    assert [(1, "succeeded")] == bench.settled(bench.orders)
    eventually(lambda: all(gone(pid) for pid in deadly.pids + good.pids))


def test_a_death_costs_no_neighbour_anything(process_bench: Bench) -> None:
    """Of 50 jobs around one that kills its child once, each runs once; its slot has a new child."""
    bench = process_bench
    killer, good = Script(always=leave_at_first), Script(always=partial(nap, 0.01))
    handlers = {bench.shop.Stray: killer, bench.shop.Charge: good}
    for n in range(25):
        bench.producer.enqueue(bench.shop.Charge(str(n)))
    bench.producer.enqueue(bench.shop.Stray(1))
    for n in range(25, 50):
        bench.producer.enqueue(bench.shop.Charge(str(n)))
    with bench.working(handlers, concurrency=2) as worker:
        bench.until(lambda: 52 == len(bench.settled(bench.orders) or ()))
    assert [1, 2] == [run.attempt for run in killer.runs]
    assert sorted(map(str, range(50))) == sorted(job.customer for job in good.jobs)
    assert {1} == {run.attempt for run in good.runs}
    assert 3 == len({*killer.pids, *good.pids})
    assert [] == bench.dead(bench.orders)
    assert 0 == worker.handle().settle_failures()


def test_a_child_that_dies_idle_costs_no_attempt(
    process_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The next job runs in a new child as if nothing had been, and the log says what was."""
    bench = process_bench
    caplog.set_level(logging.WARNING, "queuey_sync.pools")
    handler = Script()
    with bench.working({bench.shop.Notify: handler}, concurrency=1):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.settled(bench.mail))
        os.kill(handler.pids[0], signal.SIGKILL)
        eventually(lambda: gone(handler.pids[0]))
        bench.producer.enqueue(bench.shop.Notify(2))
        bench.until(lambda: 2 == len(bench.settled(bench.mail) or ()))
    assert [(1, "succeeded")] * 2 == bench.settled(bench.mail)
    assert 2 == len(set(handler.pids))
    text = "a child process died while it was idle (signal 9): starting another"
    assert [text] == [record.getMessage() for record in caplog.records]


def test_a_child_that_dies_during_a_stop_is_a_failed_attempt(process_bench: Bench) -> None:
    """The job that ran there waits for its next attempt, and `run` returns."""
    bench = process_bench
    handler = Script(partial(nap, 60))
    with bench.working({bench.shop.Charge: handler}) as worker:
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: handler.runs)
        worker.handle().shutdown()
        eventually(lambda: worker._plan.stopping.watcher().is_stopping())
        os.kill(handler.pids[0], signal.SIGKILL)
    assert [(1, "retried")] == bench.settled(bench.orders)
    assert 1 == len(handler.runs)


def test_a_child_is_replaced_after_so_many_jobs(process_bench: Bench) -> None:
    """With `max_jobs_per_child` no child runs more, and no job is lost on the way."""
    bench = process_bench
    handler = Script()
    pool = ProcessPool(max_jobs_per_child=3)
    with bench.working({bench.shop.Charge: handler}, pool=pool, concurrency=1):
        bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(8)])
        bench.until(lambda: 8 == len(bench.settled(bench.orders) or ()))
    first, second, third = dict.fromkeys(handler.pids)
    assert [first] * 3 + [second] * 3 + [third] * 2 == handler.pids
    assert [(1, "succeeded")] * 8 == bench.settled(bench.orders)


def test_a_child_that_was_replaced_leaves_no_descriptor(process_bench: Bench) -> None:
    """Without the garbage collector too, many children cost no more of them than a few."""
    bench = process_bench
    pool = ProcessPool(max_jobs_per_child=1)

    def open_after(children: int) -> int:
        handler = Script()
        with bench.working({bench.shop.Charge: handler}, pool=pool, concurrency=2):
            bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(children)])
            bench.until(lambda: children == len(handler.runs))
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.disable()
    try:
        before = open_after(2)
        assert open_after(20) <= before + 4  # those of a file that children share memory through
    finally:
        gc.enable()


@pytest.mark.parametrize(("limit", "children"), [(1, 3), (1 << 40, 1)])
def test_a_child_that_holds_too_much_is_replaced(
    process_bench: Bench, limit: int, children: int
) -> None:
    """A child over `max_memory_per_child` after a job makes room for another; no job is cut."""
    bench = process_bench
    handler = Script()
    pool = ProcessPool(max_memory_per_child=limit)
    with bench.working({bench.shop.Charge: handler}, pool=pool, concurrency=1):
        bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(3)])
        bench.until(lambda: 3 == len(bench.settled(bench.orders) or ()))
    assert children == len(set(handler.pids))
    assert [(1, "succeeded")] * 3 == bench.settled(bench.orders)


def test_the_memory_limit_of_a_child_is_a_memory_error(process_bench: Bench) -> None:
    """A handler over `child_memory_limit` fails as by any exception, and its child lives on."""
    bench = process_bench
    handler = Script(devour)
    pool = ProcessPool(child_memory_limit=2 << 30)
    with bench.working({bench.shop.Notify: handler}, pool=pool, concurrency=1):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.producer.enqueue(bench.shop.Notify(2))
        bench.until(lambda: bench.settled(bench.mail))
    assert [(1, f"{PANICKED}: MemoryError")] == bench.dead(bench.mail)
    assert 1 == len(set(handler.pids))


def test_default_concurrency_is_at_most_the_usable_processors(process_bench: Bench) -> None:
    """The prefetches of the queues bound it, and so do the processors."""
    bench = process_bench
    processors = len(os.sched_getaffinity(0))
    assert min(7, processors) == bench.worker({}).concurrency
    assert 1 == bench.worker({}, queues=[bench.shop.Queues.AUDIT]).concurrency
    assert 5 == bench.worker({}, concurrency=5).concurrency
