"""What the app puts around its handlers and before the first of them, in both pools."""

from functools import partial
from uuid import UUID

import pytest

from queuey_sync import StartError
from tests.worker.script import (
    Notes,
    framed,
    knowing_its_job,
    nap,
    note_start,
    refuse_to_start,
    translated,
    uncommitted,
)
from tests.worker.shop import Bench, Script

EXHAUSTED = "max attempts (1) exhausted after attempt 1: handler panicked"


def test_handlers_run_inside_what_is_around_them(pool_bench: Bench) -> None:
    """The first one registered is the outermost, for every job."""
    bench = pool_bench
    seen = Notes[str]()
    handlers = bench.handlers({bench.shop.Notify: Script()})
    handlers.around(partial(framed, seen, "first"))
    handlers.around(partial(framed, seen, "second"))
    with bench.working(handlers, concurrency=1):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.producer.enqueue(bench.shop.Notify(2))
        bench.until(lambda: [(1, "succeeded")] * 2 == bench.settled(bench.mail))
    assert ["into first", "into second", "out of second", "out of first"] * 2 == list(seen)


def test_what_is_around_sees_the_error_and_may_translate_it(pool_bench: Bench) -> None:
    """An exception passes through each of them; one raised in its place is the outcome."""
    bench = pool_bench
    seen = Notes[str]()
    handlers = bench.handlers({bench.shop.Charge: Script(KeyError("ada"))})
    handlers.around(partial(framed, seen, "outside"))
    handlers.around(translated)
    handlers.around(partial(framed, seen, "inside"))
    with bench.working(handlers):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: bench.dead(bench.orders))
    assert ["out of inside: KeyError", "out of outside: Fatal"] == list(seen)[2:]
    assert [(1, "fatal error: no such customer")] == bench.dead(bench.orders)


def test_an_error_at_the_end_fails_the_job(pool_bench: Bench) -> None:
    """A transaction that cannot be committed is a failed attempt, however well the handler went."""
    bench = pool_bench
    handler = Script()
    handlers = bench.handlers({bench.shop.Notify: handler})
    handlers.around(uncommitted)
    with bench.working(handlers):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.dead(bench.mail))
    assert 1 == len(handler.runs)
    assert [(1, f"{EXHAUSTED}: ValueError: commit failed")] == bench.dead(bench.mail)


def test_the_current_job_is_known_around_the_handler(pool_bench: Bench) -> None:
    """`current_job` tells the job of the run, on the way in and on the way out."""
    bench = pool_bench
    seen = Notes[UUID | None]()
    handlers = bench.handlers({bench.shop.Notify: Script()})
    handlers.around(partial(knowing_its_job, seen))
    with bench.working(handlers):
        job_id = bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.settled(bench.mail))
    assert [job_id, job_id] == list(seen)


def test_on_start_is_called_once_for_threads(memory_bench: Bench) -> None:
    """However many threads there are, they share what was started."""
    bench = memory_bench
    pids, handler = Notes[int](), Script()
    handlers = bench.handlers({bench.shop.Charge: handler})
    handlers.on_start(partial(note_start, pids))
    with bench.working(handlers, concurrency=4):
        bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(8)])
        bench.until(lambda: 8 == len(handler.runs))
    assert handler.pids[:1] == list(pids)


def test_on_start_is_called_once_in_each_process(process_bench: Bench) -> None:
    """Each child gets ready by itself, before its first job."""
    bench = process_bench
    pids, handler = Notes[int](), Script(always=partial(nap, 0.05))
    handlers = bench.handlers({bench.shop.Charge: handler})
    handlers.on_start(partial(note_start, pids))
    with bench.working(handlers, concurrency=2):
        bench.producer.enqueue_many([bench.shop.Charge(str(n)) for n in range(8)])
        bench.until(lambda: 8 == len(handler.runs))
    assert 2 == len(pids)
    assert set(handler.pids) == set(pids)


def test_a_worker_that_cannot_start_takes_nothing(pool_bench: Bench) -> None:
    """When `on_start` raises, so does `run`, with its name and its text; every job still waits."""
    bench = pool_bench
    handler = Script()
    handlers = bench.handlers({bench.shop.Notify: handler})
    handlers.on_start(refuse_to_start)
    worker = bench.worker(handlers)
    bench.producer.enqueue(bench.shop.Notify(1))
    with pytest.raises(StartError, match="on_start refuse_to_start: RuntimeError: no model"):
        worker.run()
    assert [] == handler.runs
    assert 1 == bench.adapter.ready(bench.mail)


def test_a_child_is_prepared_before_it_starts(process_bench: Bench) -> None:
    """So that what a framework sets up there is there when the app is imported."""
    bench = process_bench
    seen = Notes[str]()
    handlers = bench.handlers({bench.shop.Notify: Script()})
    handlers.preparations.append(partial(seen.append, "prepared"))
    handlers.on_start(partial(seen.append, "started"))
    with bench.working(handlers, concurrency=1):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.settled(bench.mail))
    # A forkserver that this worker has started is prepared, too.
    assert ["prepared", "started"] == list(seen)[-2:]


def test_each_thread_and_each_process_has_an_end(pool_bench: Bench) -> None:
    """After its last job, whatever another function there raises."""
    bench = pool_bench
    seen = Notes[str]()
    handlers = bench.handlers({bench.shop.Notify: Script()})
    handlers.end_hooks += [refuse_to_start, partial(seen.append, "ended")]
    with bench.working(handlers, concurrency=1):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.settled(bench.mail))
        assert [] == list(seen)
    assert ["ended"] == list(seen)
