"""Tests of `inline:`: each job at once, in the thread that enqueues it."""

import logging
import threading
from typing import Any

import pytest

from queuey_sync import ConfigurationError, Deferred, JobContext, Queuey, current_job
from queuey_sync.backends.base import Depth
from queuey_sync.errors import ShutDown
from queuey_sync.worker.inline import InlineBackend
from tests.support.shop import Charge, Notify, Shop


@pytest.fixture
def app() -> Queuey[Shop]:
    """An app that runs its jobs inline."""
    return Queuey(Shop, url="inline:")


def test_a_job_has_run_when_enqueue_returns(app: Queuey[Shop]) -> None:
    """In the same thread, with the id that the caller gets."""
    seen: list[object] = []

    @app.handler
    def charge(job: Charge, ctx: JobContext) -> None:
        seen.append((job, ctx.job_id, ctx.correlation_id, threading.get_ident()))

    job_id = app.enqueue(Charge("ada"), correlation_id="r1")
    assert seen == [(Charge("ada"), job_id, "r1", threading.get_ident())]
    app.enqueue_many([Charge("bob"), Charge("cy")])
    assert len(seen) == 3


def test_a_failing_job_is_tried_again_and_logged(
    app: Queuey[Shop], caplog: pytest.LogCaptureFixture
) -> None:
    """All attempts happen at once; the caller sees none of it, the log has where it failed."""
    attempts: list[int] = []

    @app.handler
    def charge(_: Charge, ctx: JobContext) -> None:
        attempts.append(ctx.attempt)
        raise OSError("no network")

    app.enqueue(Charge("ada"))
    assert attempts == [1, 2, 3]
    assert "dead-lettered: max attempts (3) exhausted" in caplog.messages[-1]
    assert "in charge" in caplog.messages[-1]


def test_waits_are_left_out(app: Queuey[Shop], caplog: pytest.LogCaptureFixture) -> None:
    """A delayed job, a deferred one and one that defers itself run at once, and the log says so."""
    caplog.set_level(logging.INFO)
    seen: list[tuple[str, int]] = []

    @app.handler
    def charge(job: Charge, ctx: JobContext) -> None:
        seen.append((job.customer, ctx.deferrals))
        if not ctx.deferrals:
            raise Deferred("1h")

    app.enqueue_after(Charge("ada"), "90s")
    app.defer(Charge("bob"), "1m")
    assert seen == [("ada", 0), ("ada", 1), ("bob", 0), ("bob", 1)]
    assert [
        text.partition("), ")[2] for text in caplog.messages if text.startswith("inline: ")
    ] == ["delayed by 90s, runs now", "deferred by 60s, runs now"]


def test_a_job_of_a_job_runs_after_it(app: Queuey[Shop]) -> None:
    """Not inside it: the first one has ended by then, as with a worker."""
    seen: list[str] = []

    @app.handler
    def charge(job: Charge) -> None:
        app.enqueue(Notify(job.customer))
        seen.append("charged")

    @app.handler
    def notify(job: Notify) -> None:
        seen.append(f"notified {job.to}")

    app.enqueue(Charge("ada"))
    assert seen == ["charged", "notified ada"]
    assert current_job() is None


def test_each_thread_runs_its_own_jobs(app: Queuey[Shop]) -> None:
    """A job that is busy in one thread holds up no other."""
    inside, release, ran = threading.Event(), threading.Event(), list[str]()

    @app.handler
    def charge(job: Charge) -> None:
        if job.customer == "slow":
            inside.set()
            assert release.wait(30)
        ran.append(job.customer)

    thread = threading.Thread(target=app.enqueue, args=[Charge("slow")])
    thread.start()
    assert inside.wait(30)
    app.enqueue(Charge("quick"))
    release.set()
    thread.join(30)
    assert ran == ["quick", "slow"]


def test_the_environment_can_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app made for a broker, with options of one, runs inline all the same."""
    app = Queuey(Shop, retry_granularity="5s")
    monkeypatch.setenv("QUEUEY_URL", "inline:")
    ran: list[Charge] = []
    app.handler(Charge)(ran.append)
    app.enqueue(Charge("ada"))
    assert ran == [Charge("ada")]


def test_a_start_that_fails_costs_the_job(
    app: Queuey[Shop], caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with its cause, and the next job tries again; a start that worked is over."""
    starts: list[int] = []

    @app.on_start
    def load() -> None:
        starts.append(1)
        if len(starts) == 1:
            raise OSError("no model")

    ran: list[Any] = []
    app.handler(Charge)(ran.append)
    app.enqueue(Charge("ada"))
    assert ran == []
    assert caplog.records[-1].exc_info is not None
    assert "no model" in str(caplog.records[-1].exc_info[1])
    app.enqueue_many([Charge("bob"), Charge("cy")])
    assert (ran, len(starts)) == ([Charge("bob"), Charge("cy")], 2)


def test_an_interrupt_reaches_the_caller(app: Queuey[Shop]) -> None:
    """Ctrl-C ends what the thread does; the next job is not affected."""
    ran: list[str] = []

    @app.handler
    def charge(job: Charge) -> None:
        if job.customer == "stopped":
            app.enqueue(Charge("never"))
            raise KeyboardInterrupt
        ran.append(job.customer)

    with pytest.raises(KeyboardInterrupt):
        app.enqueue(Charge("stopped"))
    app.enqueue(Charge("next"))
    assert ran == ["next"]


def test_there_is_nothing_for_a_worker(app: Queuey[Shop]) -> None:
    """A worker says so and ends, rather than wait for what never comes."""
    with pytest.raises(ConfigurationError, match="none is left for a worker"):
        app.worker(concurrency=1).run()
    nothing = Depth(ready=0, held=0, dead=0, consumers=0)
    assert [nothing, nothing] == app.backend().depths([member.config for member in Shop])


def test_a_closed_one_takes_nothing(app: Queuey[Shop]) -> None:
    """As every backend; the app makes a new one."""
    backend, producer = app.backend(), app.producer()
    assert isinstance(backend, InlineBackend)
    assert not backend.is_closed()
    app.close()
    assert backend.is_closed()
    with pytest.raises(ShutDown):
        producer.enqueue(Charge("ada"))
    app.enqueue(Charge("ada"))
