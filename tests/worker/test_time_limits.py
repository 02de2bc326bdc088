"""Time limits in threads: what is settled when, and what becomes of the slot (N3 and around it)."""

import logging
import threading
import time

import pytest

from queuey_sync import JobContext, WorkerStuck
from tests.worker.shop import Bench, Script


def test_an_overdue_attempt_is_settled_at_its_limit_once(bench: Bench) -> None:
    """N3: a blocking handler is settled at its limit, and its late end changes nothing."""
    release = threading.Event()
    handler = Script(lambda _: release.wait(30))
    with bench.working({bench.shop.Notify: handler}, job_timeout="500ms") as worker:
        started = time.monotonic()
        bench.producer.enqueue(bench.shop.Notify(1))
        [(attempt, reason)] = bench.until(lambda: bench.dead(bench.mail))
        assert time.monotonic() - started < 5
        assert 1 == attempt
        expected = "max attempts (1) exhausted after attempt 1: job timed out after 500ms"
        assert expected == reason
        release.set()
        bench.producer.enqueue(bench.shop.Notify(2))
        bench.until(lambda: 2 == len(handler.runs))
    assert 0 == worker.handle().settle_failures()
    assert bench.settled(bench.mail) in ([(1, "succeeded")], None)
    assert 0 == bench.adapter.ready(bench.mail)


def test_pure_python_is_ended_at_the_limit(memory_bench: Bench) -> None:
    """A loop that swallows every `Exception` is ended, and its slot takes the next job."""
    bench = memory_bench

    def spin(_: JobContext) -> None:
        while True:
            try:
                time.sleep(0.001)
            except Exception:
                continue

    handler = Script(spin)
    with bench.working({bench.shop.Notify: handler}, job_timeout="100ms", concurrency=1):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.producer.enqueue(bench.shop.Notify(2))
        # The one slot is overdue until the loop has ended, so the worker must not be judged stuck.
        bench.until(lambda: 2 == len(handler.runs))


def test_the_deadline_is_in_the_context(memory_bench: Bench) -> None:
    """`ctx.deadline` is on the monotonic clock, and None without a limit."""
    bench = memory_bench
    handler = Script()
    before = time.monotonic()
    with bench.working({bench.shop.Charge: handler}, job_timeout="1m"):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: handler.runs)
    deadline = handler.runs[0].deadline
    assert deadline is not None
    assert before + 60 <= deadline <= time.monotonic() + 60


def test_a_worker_whose_slots_are_all_overdue_is_stuck(memory_bench: Bench) -> None:
    """When no slot can take a job any more, `run` ends; untaken jobs are back on their queue."""
    bench = memory_bench
    release = threading.Event()

    def block(_: JobContext) -> None:
        while not release.is_set():
            try:
                release.wait(30)
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
    release.set()


def test_overdue_handlers_do_not_hold_a_stop_open(memory_bench: Bench) -> None:
    """A graceful stop counts settled, overdue attempts as drained."""
    bench = memory_bench
    release = threading.Event()
    handler = Script(lambda _: release.wait(30))
    with bench.working({bench.shop.Notify: handler}, job_timeout="200ms", concurrency=2):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.dead(bench.mail))
    release.set()


def test_the_limit_and_the_end_of_a_handler_race(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Of handlers that end just at their limit, every attempt is settled once; no runner dies."""
    bench = memory_bench
    caplog.set_level(logging.CRITICAL)
    rounds = 300
    limit = 0.02

    def near_the_limit(ctx: JobContext) -> None:
        assert ctx.deadline is not None
        spread = (int(ctx.job_id) % 2001 - 1000) / 1_000_000
        while time.monotonic() < ctx.deadline + spread:
            pass

    handler = Script(always=near_the_limit)
    with bench.working({bench.shop.Notify: handler}, job_timeout=limit, concurrency=2) as worker:
        bench.producer.enqueue_many([bench.shop.Notify(n) for n in range(rounds)])
        bench.until(
            lambda: rounds == len(bench.settled(bench.mail) or ()) + len(bench.dead(bench.mail)),
            timeout=60,
        )
    assert rounds == len(handler.runs)
    assert 0 == worker.handle().settle_failures()
    assert 0 < len(bench.dead(bench.mail)) < rounds
