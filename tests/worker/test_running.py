"""Building, running and stopping a worker: cases J and M, and its neighbours."""

import signal
import threading
from datetime import timedelta
from typing import Any

import pytest

from queuey_sync import (
    BackendError,
    ConfigurationError,
    ConsumerStopped,
    DuplicateHandler,
    Handlers,
    JobContext,
    MemoryBackend,
    QueueyError,
    RetryPolicy,
    Stopping,
    Worker,
)
from tests.support.waiting import eventually
from tests.worker.shop import Bench, Script, shop_jobs


class Gate:
    """A handler that waits until the test lets it go, and counts how many wait at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = threading.Semaphore(0)
        self.inside = 0
        self.most = 0
        self.done = 0

    def handle(self, _job: Any, _ctx: JobContext) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self._open.acquire(timeout=30)
        with self._lock:
            self.inside -= 1
            self.done += 1

    def let(self, count: int) -> None:
        self._open.release(count)


def test_default_concurrency_is_the_sum_of_the_prefetches(memory_bench: Bench) -> None:
    """J1: 4 + 2 + 1 over the whole set; 0 counts as 1; duplicates of a queue collapse."""
    bench = memory_bench
    queues = bench.shop.Queues
    assert 7 == bench.worker({}).concurrency
    assert 3 == len(bench.worker({}).queues)
    assert 1 == bench.worker({}, concurrency=0).concurrency
    twice = bench.worker({}, queues=[queues.ORDERS, queues.ORDERS])
    assert [bench.orders] == [config.full_name for config in twice.queues]


def test_queues_that_are_not_selected_are_left_alone(bench: Bench) -> None:
    """J1: a worker of one queue runs its jobs and leaves the others waiting, handler or not."""
    charge, notify = Script(), Script()
    with bench.working(
        {bench.shop.Charge: charge, bench.shop.Notify: notify}, queues=[bench.shop.Queues.ORDERS]
    ):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: charge.runs)
    assert [] == notify.runs
    assert 1 == bench.adapter.ready(bench.mail)


def test_two_handlers_for_one_job_are_refused_before_anything_is_declared() -> None:
    """J2: the duplicate is told when the worker is built, and no queue was declared by it."""
    shop, backend = shop_jobs("shop"), MemoryBackend()
    handlers = Handlers(shop.Queues)
    handlers.register(shop.Charge, Script())
    handlers.register(shop.Charge, Script())
    with pytest.raises(DuplicateHandler, match=r"job type `shop\.Charge` registered twice"):
        Worker(backend, shop.Queues, handlers=handlers)
    assert [] == backend.queue_names()


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"concurrency": -1}, "concurrency"),
        ({"concurrency": "8"}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"job_timeout": 0}, "job_timeout"),
        ({"job_timeout": "soon"}, "job_timeout"),
        ({"queues": ["orders"]}, "queues"),
    ],
)
def test_wrong_arguments_are_refused(memory_bench: Bench, options: Any, key: str) -> None:
    """Each refusal names the argument."""
    with pytest.raises(ConfigurationError, match=key):
        memory_bench.worker({}, **options)


def test_a_policy_that_no_backend_can_hold_is_refused_when_built(bench: Bench) -> None:
    """A retry delay longer than the backend's longest is an error before any job runs."""
    longest = bench.backend.longest_delay
    override = {bench.shop.Charge: RetryPolicy.fixed(2, "30d")}
    if longest is None:
        bench.worker({bench.shop.Charge: Script()}, job_retry_overrides=override)
    else:
        assert timedelta(days=24) < longest < timedelta(days=25)
        with pytest.raises(ConfigurationError, match=r"shop\.Charge.*30|longer"):
            bench.worker({bench.shop.Charge: Script()}, job_retry_overrides=override)


def test_concurrency_is_a_cap_over_all_queues(bench: Bench) -> None:
    """J3: never more than `concurrency` jobs run at once, and all of them run."""
    gate = Gate()
    with bench.working({bench.shop.Charge: gate, bench.shop.Notify: gate}, concurrency=2):
        for n in range(4):
            bench.producer.enqueue(bench.shop.Charge(str(n)))
            bench.producer.enqueue(bench.shop.Notify(n))
        for done in range(1, 9):
            bench.until(lambda: min(2, 8 - gate.done) == gate.inside)
            gate.let(1)
            bench.until(lambda done=done: done == gate.done)
    assert 2 == gate.most
    assert 0 == bench.adapter.ready(bench.orders) + bench.adapter.ready(bench.mail)


def test_a_stop_awaits_and_settles_what_runs(bench: Bench) -> None:
    """M1: `run` returns success after the running job was acked; the backend stays open."""
    gate = Gate()
    with bench.working({bench.shop.Charge: gate}) as worker:
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: gate.inside)
        handle = worker.handle()
        assert not handle.is_shutdown()
        handle.shutdown()
        assert handle.is_shutdown()
        gate.let(1)
    assert 1 == gate.done
    assert bench.settled(bench.orders) in ([(1, "succeeded")], None)
    assert 0 == bench.adapter.ready(bench.orders)
    assert not bench.backend.is_closed()
    bench.producer.enqueue(bench.shop.Charge("bob"))
    bench.until(lambda: 1 == bench.adapter.ready(bench.orders))


def test_a_stop_gives_back_what_nobody_took(bench: Bench) -> None:
    """M2: at a stop every job is either done and acked, or back on its queue, in order."""
    gate = Gate()
    with bench.working(
        {bench.shop.Charge: gate}, queues=[bench.shop.Queues.ORDERS], concurrency=1
    ) as worker:
        for n in range(6):
            bench.producer.enqueue(bench.shop.Charge(str(n)))
        bench.until(lambda: gate.inside)
        gate.let(1)
        bench.until(lambda: gate.done == 1 and gate.inside)
        worker.handle().shutdown()
        # What the broker had sent and nobody had pulled goes back while the job still runs.
        bench.until(lambda: 4 == bench.adapter.ready(bench.orders))
        gate.let(1)
    assert 2 == gate.done
    assert 4 == bench.adapter.ready(bench.orders)
    after = Script()
    with bench.working({bench.shop.Charge: after}, concurrency=1):
        bench.until(lambda: 4 == len(after.jobs))
    assert ["2", "3", "4", "5"] == [job.customer for job in after.jobs]


def test_a_stop_before_run_returns_at_once(bench: Bench) -> None:
    """M3: called before `run`, twice and from another thread, a stop makes `run` return."""
    worker = bench.worker({})
    stopper = threading.Thread(target=worker.handle().shutdown)
    stopper.start()
    stopper.join()
    worker.handle().shutdown()
    worker.run()


def test_a_worker_runs_once(memory_bench: Bench) -> None:
    """A second `run` raises at once, and says what to do."""
    worker = memory_bench.worker({})
    worker.handle().shutdown()
    worker.run()
    with pytest.raises(QueueyError, match="build a new one"):
        worker.run()


def test_a_worker_of_no_queues_returns_at_once(memory_bench: Bench) -> None:
    """An explicitly empty list of queues is legal."""
    memory_bench.worker({}, queues=[]).run()


def test_closing_the_backend_at_the_end_is_an_option(memory_bench: Bench) -> None:
    """M4: closed after `run` if asked, else left open."""
    bench = memory_bench
    with bench.working({}):
        pass
    assert not bench.backend.is_closed()
    bench.producer.enqueue(bench.shop.Charge("ada"))
    with bench.working({}, close_backend_on_shutdown=True):
        pass
    assert bench.backend.is_closed()


def test_a_backend_closed_under_the_worker_ends_it(bench: Bench) -> None:
    """M5: `run` raises `ConsumerStopped` with a queue of the set, after the running job ended."""
    gate = Gate()
    worker = bench.worker({bench.shop.Charge: gate})
    bench.producer.enqueue(bench.shop.Charge("ada"))

    def close() -> None:
        eventually(lambda: gate.inside)
        bench.backend.close()
        gate.let(1)

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(ConsumerStopped, match=r"consumer for queue `.*` stopped unexpectedly"):
        worker.run()
    closer.join()
    assert 1 == gate.done
    assert 0 == worker.handle().settle_failures()
    assert 0 == bench.adapter.ready(bench.orders)


def test_a_backend_closed_while_stopping_is_no_error(memory_bench: Bench) -> None:
    """A stream that ends by itself after the stop was requested changes nothing."""
    bench = memory_bench
    gate = Gate()
    with bench.working({bench.shop.Charge: gate}) as worker:
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: gate.inside)
        worker.handle().shutdown()
        eventually(lambda: bench.adapter.ready(bench.orders) == 0)
        bench.backend.close()
        gate.let(1)
    assert 1 == gate.done


class _CannotClose(MemoryBackend):
    def close(self) -> None:
        super().close()
        raise BackendError("cannot close")


@pytest.mark.parametrize("closed_before", [False, True])
def test_an_error_of_closing_is_raised_unless_there_was_another(closed_before: bool) -> None:
    """Closing fails: that error; closing fails after an earlier error: the earlier one."""
    backend, shop = _CannotClose(), shop_jobs("shop")
    worker = Worker(
        backend, shop.Queues, handlers=Handlers(shop.Queues), close_backend_on_shutdown=True
    )
    if closed_before:
        MemoryBackend.close(backend)
    else:
        worker.handle().shutdown()
    with pytest.raises(QueueyError, match="unexpectedly" if closed_before else "cannot close"):
        worker.run()


def test_stopping_gives_the_job_back_and_costs_no_attempt(bench: Bench) -> None:
    """A handler that leaves with `Stopping` during a stop has its job back on the queue."""
    started = threading.Event()

    def handle(_: JobContext) -> None:
        started.set()

    def wait_for_stop(ctx: JobContext) -> None:
        handle(ctx)
        assert ctx.watcher.wait("20s")
        assert ctx.stopping
        raise Stopping

    handler = Script(wait_for_stop)
    with bench.working({bench.shop.Notify: handler}) as worker:
        bench.producer.enqueue(bench.shop.Notify(1))
        assert started.wait(20)
        worker.handle().shutdown()
    assert 1 == bench.adapter.ready(bench.mail)
    assert [] == bench.dead(bench.mail)
    again = Script()
    with bench.working({bench.shop.Notify: again}):
        bench.until(lambda: again.runs)
    assert 1 == again.runs[0].attempt


def test_stopping_without_a_stop_is_a_failed_attempt(memory_bench: Bench) -> None:
    """`Stopping` while nothing stops would give the job back for ever: it counts as a failure."""
    bench = memory_bench
    with bench.working({bench.shop.Notify: Script(always=Stopping())}):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.dead(bench.mail))
    assert "handler panicked: Stopping" in bench.dead(bench.mail)[0][1]


def test_contextvars_of_one_job_are_not_seen_by_the_next(memory_bench: Bench) -> None:
    """What a handler sets in a context variable ends with its run."""
    import contextvars

    variable = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    def handle(_: JobContext) -> None:
        seen.append(variable.get())
        variable.set("set")

    bench = memory_bench
    with bench.working({bench.shop.Charge: Script(always=handle)}, concurrency=1):
        bench.producer.enqueue(bench.shop.Charge("a"))
        bench.producer.enqueue(bench.shop.Charge("b"))
        bench.until(lambda: 2 == len(seen))
    assert ["unset", "unset"] == seen


def test_a_runner_that_dies_ends_the_worker(
    memory_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the worker that fails is noticed, and `run` raises what killed it."""
    bench = memory_bench

    def die(*_: object) -> bool:
        raise MemoryError("no room for a job")

    monkeypatch.setattr("queuey_sync.worker.slots.Slots._take_one", die)
    worker = bench.worker({})
    with pytest.raises(MemoryError, match="no room"):
        worker.run()


@pytest.mark.usefixtures("interruptible")
def test_a_ctrl_c_in_run_stops_gracefully_and_is_raised(memory_bench: Bench) -> None:
    """Without any signal handler of ours, an interrupt still settles what runs before it leaves."""
    bench = memory_bench
    gate = Gate()
    worker = bench.worker({bench.shop.Charge: gate})
    bench.producer.enqueue(bench.shop.Charge("ada"))

    main = threading.main_thread().ident or 0

    def interrupt() -> None:
        eventually(lambda: gate.inside)
        signal.pthread_kill(main, signal.SIGINT)
        eventually(lambda: worker._plan.stopping.watcher().is_stopping())
        gate.let(1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    thread.join()
    assert [(1, "succeeded")] == bench.settled(bench.orders)
