"""Tests of the context of a job: its neutral defaults, what it works out, and who can see it."""

import threading
import time
from contextvars import copy_context
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from queuey_sync.context import JobContext, current_job, set_current
from queuey_sync.errors import ConfigurationError
from queuey_sync.shutdown import Shutdown
from tests.support.shop import Charge, Chase


def test_defaults_are_neutral() -> None:
    """A context made by hand is the first and only attempt of a job enqueued now, with no limit."""
    ctx = JobContext()
    assert (UUID(int=0), "", "", 1, 1, 0, 0, None, None, True, False) == (
        ctx.job_id,
        ctx.job_type,
        ctx.queue,
        ctx.attempt,
        ctx.max_attempts,
        ctx.deferrals,
        ctx.priority,
        ctx.correlation_id,
        ctx.deadline,
        ctx.is_last_attempt,
        ctx.stopping,
    )
    assert timedelta(0) <= ctx.age < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("attempt", "max_attempts", "last"), [(1, 3, False), (2, 3, False), (3, 3, True), (4, 3, True)]
)
def test_the_last_attempt(attempt: int, max_attempts: int, last: bool) -> None:
    """An attempt is the last when it reaches, or is beyond, what the policy allows."""
    assert last is JobContext(attempt=attempt, max_attempts=max_attempts).is_last_attempt


def test_age_counts_from_the_first_enqueueing() -> None:
    """The age is the time since then."""
    ctx = JobContext(enqueued_at_ms=time.time_ns() // 1_000_000 - 90_000)
    assert timedelta(seconds=90) <= ctx.age < timedelta(seconds=150)


@pytest.mark.parametrize("ahead_ms", [60_000, 2**64 - 1])
def test_age_is_never_negative(ahead_ms: int) -> None:
    """A job from a machine whose clock is ahead has no age yet."""
    assert timedelta(0) == JobContext(enqueued_at_ms=time.time_ns() // 1_000_000 + ahead_ms).age


def test_stopping_follows_the_watcher() -> None:
    """The context says that the worker is stopping from that moment on."""
    shutdown = Shutdown()
    ctx = JobContext(watcher=shutdown.watcher())
    assert not ctx.stopping
    shutdown.stop()
    assert ctx.stopping


@pytest.mark.parametrize("field", ["attempt", "watcher", "other"])
def test_a_context_is_frozen(field: str) -> None:
    """A handler cannot change what it is told."""
    ctx: Any = JobContext()
    with pytest.raises(AttributeError):
        setattr(ctx, field, 2)


def test_current_job_is_that_of_the_thread() -> None:
    """The current job is seen between entering and leaving, nested, and by its own thread alone."""
    outer, inner = JobContext(attempt=1), JobContext(attempt=2)
    seen: list[JobContext | None] = [current_job()]

    def run_outer() -> None:
        set_current(outer)
        copy_context().run(run_inner)
        seen.append(current_job())

    def run_inner() -> None:
        set_current(inner)
        seen.append(current_job())
        other = threading.Thread(target=lambda: seen.append(current_job()))
        other.start()
        other.join()

    copy_context().run(run_outer)
    seen.append(current_job())
    assert [None, inner, None, outer, None] == seen


def test_a_context_for_a_test_fits_its_job() -> None:
    """Type, queue and policy are those of the job, given as one or as a class; the id is fresh."""
    ctx = JobContext.for_test(Chase, attempt=2)
    assert ("shop.Chase", "shop.mail", 2, 2, True) == (
        ctx.job_type,
        ctx.queue,
        ctx.attempt,
        ctx.max_attempts,
        ctx.is_last_attempt,
    )
    assert 3 == JobContext.for_test(Charge("ada")).max_attempts, "its queue's"
    assert 7 == JobContext.for_test(Chase, max_attempts=7).max_attempts
    assert JobContext.for_test().job_id != JobContext.for_test().job_id


def test_a_context_for_a_test_can_be_any() -> None:
    """Without a job it is neutral; the rest is as the test says."""
    ctx = JobContext.for_test()
    assert ("", 1, 1, False) == (ctx.job_type, ctx.attempt, ctx.max_attempts, ctx.stopping)
    ctx = JobContext.for_test(deferrals=4, age="2h", correlation_id="r1", stopping=True)
    assert (4, "r1", True) == (ctx.deferrals, ctx.correlation_id, ctx.stopping)
    assert not ctx.watcher.sleep("1h")
    assert timedelta(hours=2) <= ctx.age < timedelta(hours=3)
    with pytest.raises(ConfigurationError, match=r"^age: "):
        JobContext.for_test(age="soon")
