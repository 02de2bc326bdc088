"""Time limits: what is settled when, and what becomes of the slot (N3 and around it)."""

import logging
import time
from functools import partial
from typing import Any

import pytest

from queuey_sync import JobContext, WorkerStuck
from tests.contract.adapters import RabbitMQAdapter
from tests.support.waiting import eventually
from tests.worker.script import (
    Door,
    Notes,
    Racer,
    have_another_sleep,
    nap,
    spin,
    spin_though_warned,
    spin_until_warned,
)
from tests.worker.shop import Bench, Script, gone

EXHAUSTED = "max attempts (1) exhausted after attempt 1"


def test_an_overdue_attempt_is_settled_at_its_limit_once(every_bench: Bench) -> None:
    """N3: a blocking handler is settled at its limit, and its late end changes nothing."""
    bench = every_bench
    door = Door()
    handler = Script(door.wait)
    with bench.working({bench.shop.Notify: handler}, job_timeout="500ms") as worker:
        bench.producer.enqueue(bench.shop.Notify(1))
        started = bench.until(lambda: handler.times)[0]
        dead = bench.until(lambda: bench.dead(bench.mail))
        assert time.monotonic() - started < 5
        assert [(1, f"{EXHAUSTED}: job timed out after 500ms")] == dead
        door.open()
        bench.producer.enqueue(bench.shop.Notify(2))
        bench.until(lambda: 2 == len(handler.runs))
        late = 1 if bench.pool == "thread" else 0  # a process is killed, so nothing comes late
        bench.until(lambda: late == worker.handle().late_results())
    assert 0 == worker.handle().settle_failures()
    assert bench.settled(bench.mail) in ([(1, "succeeded")], None)
    assert 0 == bench.adapter.ready(bench.mail)


def test_pure_python_is_ended_at_the_limit(pool_bench: Bench) -> None:
    """A loop that swallows every `Exception` is ended, and its slot takes the next job."""
    bench = pool_bench
    handler = Script(spin)
    with bench.working({bench.shop.Notify: handler}, job_timeout="200ms", concurrency=1):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.producer.enqueue(bench.shop.Notify(2))
        # The one slot is overdue until the loop has ended, so the worker must not be judged stuck.
        bench.until(lambda: 2 == len(handler.runs))


def test_the_deadline_is_in_the_context(pool_bench: Bench) -> None:
    """`ctx.deadline` is on the monotonic clock, and None without a limit."""
    bench = pool_bench
    limited, free = Script(), Script()
    before = time.monotonic()
    with bench.working({bench.shop.Charge: limited}, job_timeout="1m"):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: limited.runs)
    deadline = limited.runs[0].deadline
    assert deadline is not None
    assert before + 60 <= deadline <= time.monotonic() + 60
    with bench.working({bench.shop.Charge: free}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: free.runs)
    assert free.runs[0].deadline is None


@pytest.mark.parametrize(
    ("worker_limits", "step", "reason"),
    [
        ({"job_timeout": "1m", "soft_timeout": "30s"}, spin, "500ms"),
        ({"job_timeout": "200ms", "soft_timeout": "100ms"}, partial(nap, 0.3), None),
    ],
    ids=["shorter", "longer"],
)
def test_the_limits_of_a_job_come_before_the_workers(
    pool_bench: Bench, worker_limits: Any, step: Any, reason: str | None
) -> None:
    """A job class with limits of its own is held to those, be they shorter or longer."""
    bench = pool_bench
    handler = Script(step)
    with bench.working({bench.shop.Hurry: handler}, **worker_limits):
        bench.producer.enqueue(bench.shop.Hurry(1))
        bench.until(lambda: bench.dead(bench.mail) or bench.settled(bench.mail))
    expected = [] if reason is None else [(1, f"{EXHAUSTED}: job timed out after {reason}")]
    assert expected == bench.dead(bench.mail)


def test_a_process_over_its_limit_is_gone_with_all_it_started(process_bench: Bench) -> None:
    """The child and its own child are killed; its neighbours lose no attempt; its slot goes on."""
    bench = process_bench
    sleepers = Notes[int]()
    hung, good = Script(partial(have_another_sleep, sleepers)), Script(always=partial(nap, 0.02))
    limits = {"job_timeout": "1s", "concurrency": 2}
    with bench.working({bench.shop.Notify: hung, bench.shop.Charge: good}, **limits):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(40)])
        bench.until(lambda: bench.dead(bench.mail))
        [child], [sleeper] = hung.pids, sleepers
        eventually(lambda: gone(child) and gone(sleeper))
        bench.producer.enqueue(bench.shop.Notify(2))
        bench.until(lambda: 2 == len(hung.runs) and 40 == len(good.runs))
    assert [(1, f"{EXHAUSTED}: job timed out after 1s")] == bench.dead(bench.mail)
    assert [(1, "succeeded")] * 40 == bench.settled(bench.orders)


def test_a_worker_whose_slots_are_all_overdue_is_stuck(memory_bench: Bench) -> None:
    """When no slot can take a job any more, `run` ends; untaken jobs are back on their queue.

    In threads alone: a process is killed, so its slot is never held.
    """
    bench = memory_bench
    door = Door()

    def block(ctx: JobContext) -> None:
        while True:
            try:
                return door.wait(ctx)
            except BaseException:
                continue

    handler = Script(always=block)
    worker = bench.worker({bench.shop.Notify: handler}, job_timeout="200ms", concurrency=2)
    for n in range(3):
        bench.producer.enqueue(bench.shop.Notify(n))
    with pytest.raises(WorkerStuck, match="all 2 slots"):
        worker.run()
    assert 2 == len(bench.dead(bench.mail))
    assert 1 == bench.adapter.ready(bench.mail)
    door.open()


def test_overdue_handlers_do_not_hold_a_stop_open(memory_bench: Bench) -> None:
    """A graceful stop counts settled, overdue attempts as drained.

    In threads alone: no process is ever overdue.
    """
    bench = memory_bench
    handler = Script(partial(nap, 2))
    with bench.working({bench.shop.Notify: handler}, job_timeout="200ms", concurrency=2):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.dead(bench.mail))
    assert time.monotonic() - handler.times[0] < 1.5


def test_the_limit_and_the_end_of_a_handler_race(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Of handlers that end just at their limit, every attempt is settled once; no runner dies.

    In threads alone: the result of a process is there in time or it is not, and no exception is on
    its way to anybody.
    """
    bench = memory_bench
    caplog.set_level(logging.CRITICAL)
    _race(bench, {"job_timeout": "20ms"}, "20ms")


def test_the_soft_limit_lets_a_handler_clean_up(pool_bench: Bench) -> None:
    """A handler that catches `SoftTimeout` and returns has succeeded."""
    bench = pool_bench
    cleaned = Notes[str]()
    handler = Script(partial(spin_until_warned, cleaned))
    with bench.working({bench.shop.Notify: handler}, soft_timeout="200ms", job_timeout="10s"):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.settled(bench.mail))
    assert ["cleaned up"] == list(cleaned)
    assert [(1, "succeeded")] == bench.settled(bench.mail)


@pytest.mark.parametrize("limits", [{}, {"job_timeout": "30s"}], ids=["alone", "before a limit"])
def test_the_soft_limit_ends_a_handler_that_lets_it_through(pool_bench: Bench, limits: Any) -> None:
    """`SoftTimeout` that leaves the handler is a failed attempt, with the soft limit as reason."""
    bench = pool_bench
    handler = Script(spin)
    with bench.working({bench.shop.Charge: handler}, soft_timeout="200ms", **limits):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 2 == len(handler.runs))
    assert [(1, "retried"), (2, "succeeded")] == bench.settled(bench.orders)
    handler = Script(spin)
    with bench.working({bench.shop.Notify: handler}, soft_timeout="200ms", **limits):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.dead(bench.mail))
    assert [(1, f"{EXHAUSTED}: job timed out after 200ms")] == bench.dead(bench.mail)


def test_a_handler_that_swallows_the_soft_limit_meets_the_hard_one(pool_bench: Bench) -> None:
    """The soft limit warns once; what goes on is ended at the hard limit."""
    bench = pool_bench
    ignored = Notes[str]()
    handler = Script(partial(spin_though_warned, ignored))
    with bench.working({bench.shop.Notify: handler}, soft_timeout="200ms", job_timeout="500ms"):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.dead(bench.mail))
    assert 1 == len(ignored)
    assert [(1, f"{EXHAUSTED}: job timed out after 500ms")] == bench.dead(bench.mail)


def test_the_soft_limit_ends_a_blocking_call_in_a_process(process_bench: Bench) -> None:
    """A child's `time.sleep` ends at the soft limit. In a thread it would go on to its end."""
    bench = process_bench
    handler = Script(partial(nap, 60))
    with bench.working({bench.shop.Notify: handler}, soft_timeout="200ms", concurrency=1):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.producer.enqueue(bench.shop.Notify(2))
        bench.until(lambda: 2 == len(handler.runs))
    assert [(1, f"{EXHAUSTED}: job timed out after 200ms")] == bench.dead(bench.mail)
    assert 1 == len(set(handler.pids))


def test_the_soft_limit_and_the_end_of_a_handler_race(
    pool_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Of handlers that end just at their soft limit, every attempt is settled once, in its slot."""
    caplog.set_level(logging.CRITICAL)
    _race(pool_bench, {"soft_timeout": "10ms", "job_timeout": "10s"}, "10ms")


def _race(bench: Bench, limits: Any, limit: str) -> None:
    """Run jobs that end just before or just after their limit, and account for every one."""
    rounds = 300
    handler = Racer(int(limit.removesuffix("ms")) / 1000)
    with bench.working({bench.shop.Notify: handler}, concurrency=2, **limits) as worker:
        bench.producer.enqueue_many([bench.shop.Notify(n) for n in range(rounds)])
        bench.until(
            lambda: rounds <= len(bench.settled(bench.mail) or ()) + len(bench.dead(bench.mail)),
            timeout=60,
        )
    assert 0 == worker.handle().settle_failures()
    dead = bench.dead(bench.mail)
    assert 0 < len(dead) < rounds
    assert rounds == len(bench.settled(bench.mail) or ()) + len(dead)
    assert {(1, f"{EXHAUSTED}: job timed out after {limit}")} == set(dead)


@pytest.mark.parametrize(("limit", "too_long"), [("30m", False), ("31m", True)])
def test_a_limit_beyond_that_of_the_broker_is_told(
    bench: Bench, caplog: pytest.LogCaptureFixture, limit: str, too_long: bool
) -> None:
    """RabbitMQ takes a job away after a time that no client can ask for, so its default counts."""
    caplog.set_level(logging.INFO)
    with bench.working({bench.shop.Notify: Script()}, job_timeout=limit):
        bench.until(lambda: "working on" in caplog.text)
    told = "limit of shop.Notify is longer than the 1800s" in caplog.text
    assert told == (too_long and isinstance(bench.adapter, RabbitMQAdapter))
