"""Tests of jobs in memory: how they run in the thread of a test, and what the test sees of them."""

import contextvars
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from queuey_sync import (
    ConfigurationError,
    DeadLetterCause,
    Deferred,
    DuplicateHandler,
    Fatal,
    Job,
    JobContext,
    QueueSet,
    Queuey,
    QueueyError,
    RetryPolicy,
    SoftTimeout,
    StartError,
    current_job,
    queue,
)
from queuey_sync.testing import MemoryJobs, run_pending, use_memory
from tests.support.shop import Charge, Notify, Shop

NOWHERE = "amqp://127.0.0.1:1"


class Impatient(QueueSet):
    """A set whose jobs are judged by no clock but the policies'."""

    WORK = queue(retry=RetryPolicy.fixed(2, "1h"))


class Slow(Job[Impatient], queue=Impatient.WORK, name="slow", timeout="1h", soft_timeout="1ms"):
    """A job with time limits."""


@pytest.fixture
def app() -> Queuey[Shop]:
    """An app whose broker is not there."""
    return Queuey(Shop, url=NOWHERE)


@pytest.fixture
def jobs(app: Queuey[Shop]) -> Iterator[MemoryJobs]:
    """The jobs of `app`, in memory."""
    with use_memory(app) as jobs:
        yield jobs


def test_a_job_runs_in_the_thread_of_the_test(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """It sees what this thread has not committed yet, as in a test case with a transaction."""
    database = sqlite3.connect(":memory:")  # refuses every other thread
    database.execute("CREATE TABLE charges (customer TEXT)")

    @app.handler
    def charge(job: Charge) -> None:
        database.execute("INSERT INTO charges VALUES (?)", [job.customer])

    app.enqueue(Charge("ada"))
    assert jobs.run() == 1
    assert database.in_transaction
    assert [("ada",)] == database.execute("SELECT * FROM charges").fetchall()
    database.close()


def test_a_job_runs_as_in_a_worker(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """Decoded, with its context, inside what was registered around it, after one start."""
    seen: list[object] = []
    mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="none")
    mark.set("of the test")
    app.on_start(lambda: seen.append("start"))

    @app.around
    @contextmanager
    def wrapped() -> Iterator[None]:
        seen.append("in")
        yield
        seen.append("out")

    @app.handler
    def notify(job: Notify, ctx: JobContext) -> None:
        assert current_job() is ctx
        seen.append((job, ctx.job_id, ctx.queue, ctx.attempt, ctx.max_attempts, ctx.stopping))
        seen.append(mark.get())

    ids = app.enqueue_many([Notify("ada", tags=["a"]), Notify("bob")])
    run_pending(app)
    assert seen == [
        "start",
        "in",
        (Notify("ada", tags=["a"]), ids[0], "shop.mail", 1, 2, False),
        "none",
        "out",
        "in",
        (Notify("bob"), ids[1], "shop.mail", 1, 2, False),
        "none",
        "out",
    ]
    assert run_pending(app) == 0


def test_waits_are_jumped_over(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """Retries, deferrals and delays are due at once, in the order of their times."""
    seen: list[tuple[str, int, int, timedelta]] = []

    @app.handler
    def charge(job: Charge, ctx: JobContext) -> None:
        seen.append((job.customer, ctx.attempt, ctx.deferrals, jobs.clock.now))
        if job.customer == "failing" and ctx.attempt < 3:
            raise OSError("no network")
        if job.customer == "busy" and not ctx.deferrals:
            raise Deferred("1500ms")

    app.enqueue_after(Charge("later"), "7d")
    app.enqueue_many([Charge("failing"), Charge("busy")])
    assert jobs.run() == 6
    assert seen == [
        ("failing", 1, 0, timedelta(0)),
        ("busy", 1, 0, timedelta(0)),
        ("failing", 2, 0, timedelta(seconds=1)),
        ("busy", 1, 1, timedelta(seconds=1.5)),
        ("failing", 3, 0, timedelta(seconds=2)),
        ("later", 1, 0, timedelta(days=7)),
    ]
    assert jobs.dead() == []


def test_a_deferred_job_goes_first(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """What became due with a higher priority is ahead of what waited before it, also in a run."""
    ran: list[str] = []

    @app.handler
    def charge(job: Charge) -> None:
        ran.append(job.customer)
        if job.customer == "first":
            app.defer(Charge("urgent"), 0)

    app.enqueue_many([Charge("first"), Charge("second")])
    app.defer(Charge("deferred"), "1s")
    jobs.clock.advance("1s")
    jobs.run()
    assert ran == ["deferred", "first", "urgent", "second"]


def test_time_can_be_limited(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """What is not due within the time given stays, and the clock goes on from there."""
    app.handler(Charge)(lambda job: None)
    app.enqueue_after(Charge("ada"), "24h")
    assert (0, 0) == (jobs.run(within="23h"), jobs.run(within=0))
    assert jobs.clock.now == timedelta(hours=23)
    assert jobs.run(within="1h") == 1
    with pytest.raises(ConfigurationError, match=r"^within: "):
        jobs.run(within=-1)


def test_what_was_enqueued_is_told(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """Each job once, by class, in order, however it was enqueued and wherever it ended."""

    @app.handler
    def charge(job: Charge) -> None:
        app.enqueue(Notify(job.customer))
        raise OSError

    app.enqueue(Charge("ada"))
    app.enqueue_after(Charge("bob"), "1h")
    app.defer(Charge("cy"), "1h")
    app.enqueue_many([Charge("di")])
    everyone = [Charge("ada"), Charge("bob"), Charge("cy"), Charge("di")]
    assert (everyone, []) == (jobs.enqueued(Charge), jobs.enqueued(Notify))
    jobs.run(within=0)
    assert everyone == jobs.enqueued(Charge)
    assert ["ada", "di"] == [job.to for job in jobs.enqueued(Notify)]


def test_what_is_dead_is_told(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """With its reason, its cause and how often it ran."""

    @app.handler
    def charge(job: Charge) -> None:
        if job.customer == "nobody":
            raise Fatal("no such customer")
        raise OSError("no network")

    app.enqueue_many([Charge("ada"), Charge("nobody"), Notify("unhandled")])
    jobs.run()
    told = {(dead.cause, dead.attempts, dead.reason.rpartition(": ")[2]) for dead in jobs.dead()}
    assert told == {
        (DeadLetterCause.EXHAUSTED, 3, "no network"),
        (DeadLetterCause.FATAL, 1, "no such customer"),
        (DeadLetterCause.NO_HANDLER, 1, "no handler for job type `mail.send`"),
    }
    assert 2 == len(jobs.backend.dead_letters("shop.orders"))


def test_time_limits_are_not_kept() -> None:
    """Nobody watches the thread of a test."""
    app = Queuey(Impatient)
    app.handler(Slow)(lambda job, ctx: ctx.watcher.sleep("5ms"))
    with use_memory(app) as jobs:
        app.enqueue(Slow())
        assert (1, []) == (jobs.run(), jobs.dead())


@pytest.mark.parametrize("again", ["defer", "enqueue"])
def test_an_endless_job_is_named(app: Queuey[Shop], jobs: MemoryJobs, again: str) -> None:
    """A job that always comes back ends the run at its limit, whichever way it comes."""

    @app.handler
    def charge(job: Charge) -> None:
        if again == "defer":
            raise Deferred("1s")
        app.enqueue(job)

    app.enqueue(Charge("ada"))
    with pytest.raises(QueueyError, match=r"after 50 runs: job `shop\.Charge` ran 50 times"):
        jobs.run(limit=50)
    with pytest.raises(QueueyError, match="after 7 runs"):
        run_pending(app, limit=7)
    with pytest.raises(ConfigurationError, match=r"^limit: "):
        jobs.run(limit=0)


def test_as_many_runs_as_the_limit_are_well(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """Only one more would be too many."""
    app.handler(Charge)(lambda job: None)
    app.enqueue_many([Charge("ada"), Charge("bob")])
    assert jobs.run(limit=2) == 2


def test_errors_are_outcomes_unless_they_are_asked_for(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """A bug in a handler can end the test where it is; what says how a job ends never does."""
    raised = [Deferred("1s"), Fatal("no"), SoftTimeout(), KeyError("bug"), None]

    @app.handler
    def charge(_: Charge) -> None:
        if (error := raised.pop(0)) is not None:
            raise error

    app.enqueue_many([Charge("ada"), Charge("bob")])
    with pytest.raises(KeyError, match="bug") as caught:
        jobs.run(raise_errors=True)
    assert "charge" == caught.traceback[-1].name
    assert jobs.run(raise_errors=True) == 1, "the attempt failed, and the next one is due"
    raised.append(KeyError("bug"))
    app.enqueue(Charge("cy"))
    raised.extend([KeyError("bug")] * 2)
    assert jobs.run() == 3


@pytest.mark.parametrize(
    "interrupt", [KeyboardInterrupt, pytest.fail.Exception, pytest.skip.Exception]
)
def test_who_runs_the_test_is_heard(
    app: Queuey[Shop], jobs: MemoryJobs, interrupt: type[BaseException]
) -> None:
    """Ctrl-C, and what pytest raises to end a test, are no outcome of a job."""

    @app.handler
    def charge(_: Charge) -> None:
        raise interrupt

    app.enqueue(Charge("ada"))
    with pytest.raises(interrupt):
        jobs.run()


def test_a_start_that_fails_is_told(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """Nothing runs before what was registered for the start has worked, which is tried again."""
    faults: list[Exception] = [OSError("no model")]

    @app.on_start
    def load() -> None:
        if faults:
            raise faults.pop()

    app.handler(Charge)(lambda job: None)
    app.enqueue(Charge("ada"))
    with pytest.raises(StartError, match="no model"):
        jobs.run()
    assert jobs.run() == 1


def test_two_handlers_of_one_job_are_refused(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """As a worker refuses them."""
    app.handler(Charge)(lambda job: None)
    app.handler(Charge)(lambda job: None)
    with pytest.raises(DuplicateHandler):
        jobs.run()


def test_the_app_has_its_own_backend_before_and_after(app: Queuey[Shop]) -> None:
    """Also after a failure; who holds on to a method of the app enqueues into memory as well."""
    own, enqueue = app.backend(), app.enqueue
    with suppress(KeyError), use_memory(app) as jobs:
        enqueue(Charge("ada"))
        assert app.backend() is app.producer().backend is jobs.backend
        raise KeyError
    assert jobs.enqueued(Charge) == [Charge("ada")]
    assert jobs.backend.is_closed()
    assert app.backend() is own
    assert not own.is_closed()


def test_the_inner_memory_counts(app: Queuey[Shop]) -> None:
    """One memory inside another takes its place for a time."""
    with use_memory(app) as outer:
        app.enqueue(Charge("outer"))
        with use_memory(app) as inner:
            app.enqueue(Charge("inner"))
        app.enqueue(Charge("outer too"))
    assert [Charge("inner")] == inner.enqueued(Charge)
    assert [Charge("outer"), Charge("outer too")] == outer.enqueued(Charge)


def test_code_that_closes_its_app_stays_in_memory(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """Closing, or naming another URL, changes nothing before the end of the block."""
    app.enqueue(Charge("ada"))
    app.close()
    app.connect_to("memory:")
    app.enqueue(Charge("bob"))
    assert [Charge("ada"), Charge("bob")] == jobs.enqueued(Charge)


def test_an_app_without_a_url_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one of the environment, which is not even read."""
    monkeypatch.setenv("QUEUEY_URL", "no such thing")
    app = Queuey(Shop)
    with use_memory(app) as jobs:
        app.enqueue(Charge("ada"))
    assert [Charge("ada")] == jobs.enqueued(Charge)


def test_a_worker_of_the_app_works_on_memory(app: Queuey[Shop], jobs: MemoryJobs) -> None:
    """A worker made inside the block takes the jobs of the block, in its own threads."""
    threads: list[threading.Thread] = []
    app.handler(Charge)(lambda job: threads.append(threading.current_thread()))
    app.enqueue(Charge("ada"))
    summary = app.worker(concurrency=1).drain()
    assert (1, 0) == (summary.total("succeeded"), jobs.run())
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("url", [NOWHERE, "memory:", "inline:"])
def test_pending_jobs_are_run_in_memory_alone(url: str) -> None:
    """An app of another backend has workers to do it; the text says what to do first."""
    with pytest.raises(ConfigurationError, match=r"use_memory\(app\)"):
        run_pending(Queuey(Shop, url=url))


def test_unknown_names_are_refused() -> None:
    """The names of the room are imported when asked for, and no others."""
    from queuey_sync import testing

    unknown: Any = testing
    with pytest.raises(AttributeError, match="'use_disk'"):
        _ = unknown.use_disk
    assert all(getattr(testing, name) for name in testing.__all__)
