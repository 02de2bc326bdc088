"""What a handler may do to its own child, and what the worker makes of it.

That is an outcome of this job alone, a child in good order for the next one, and an end in time.
"""

import re
import signal
import time
from pathlib import Path

import pytest

from tests.process.pool_workers import Family, Start, each, each_start_method, program
from tests.support.waiting import eventually

_GIVEN_UP = "max attempts (2) exhausted after attempt 2:"
_PANIC = f"{_GIVEN_UP} handler panicked: process died"


def _run(start: Start, *actions: str, pool: dict[str, object] | None = None) -> Family:
    """A worker that has run these, and a good job last, and has stopped."""
    jobs = [*each(*actions), {"what": "good", "number": 99}]
    family = start(program(jobs, pool=pool or {}))
    family.awaits(1, "end", number=99)
    return family


def _dead(family: Family) -> list[str]:
    return list(family.marks("left")[0]["dead"])


@pytest.mark.parametrize("action", ["close all", "close the line"])
@each_start_method
def test_a_handler_that_closes_its_childs_files(
    start: Start, action: str, start_method: str
) -> None:
    """The result cannot come back: a failed attempt, and a new child for the next job."""
    family = _run(start, action, pool={"start_method": start_method})
    family.awaits(2, "start", what=action)
    assert 0 == family.stop()
    # A spawned child that has closed all is taken for dead, and may be killed before it dies.
    either = [f"{_PANIC} (exit code 1)"], [f"{_PANIC} (signal 9)"]
    assert _dead(family) in either
    eventually(family.is_gone, 5)


@each_start_method
def test_a_handler_that_writes_into_the_childs_line(start: Start, start_method: str) -> None:
    """What comes back is no result: the child is ended, and the attempt failed."""
    family = _run(start, "junk", pool={"start_method": start_method})
    family.awaits(2, "start", what="junk")
    assert 0 == family.stop()
    assert [f"{_PANIC} (signal 9)"] == _dead(family)
    eventually(family.is_gone, 5)


@pytest.mark.parametrize("action", ["fork", "fork and exit"])
def test_a_handler_that_forks(start: Start, action: str) -> None:
    """The copy is no child of the pool: it answers for no job, and takes none."""
    family = _run(start, action, *["good"] * 20)
    child = family.marks("start", what=action)[0]["pid"]
    assert {child} == {one["pid"] for one in family.marks("start", what="good")}
    assert 1 == len(family.marks("start", what=action))
    assert 0 == family.stop()
    assert [] == _dead(family)
    eventually(family.is_gone, 5)


@each_start_method
def test_a_handler_with_child_processes_of_its_own(start: Start, start_method: str) -> None:
    """A handler may use `multiprocessing`, and its processes leave nothing behind."""
    family = _run(start, "nest", pool={"start_method": start_method})
    assert [[5, 5]] == [one["told"] for one in family.marks("end", what="nest")]
    assert 0 == family.stop()
    assert [] == _dead(family)
    eventually(family.is_gone, 5)


@pytest.mark.parametrize("action", ["leave group", "new session"])
def test_a_handler_that_leaves_its_group_has_a_time_limit(start: Start, action: str) -> None:
    """Its child is killed at the limit all the same, and nobody else is."""
    jobs = [*each(action, seconds=1000, limited=True), *each("good")]
    family = start(program(jobs))
    family.awaits(2, "start", what=action)
    family.awaits(1, "end", what="good")
    assert 0 == family.stop()
    assert [f"{_GIVEN_UP} job timed out after 1s"] == _dead(family)
    if action == "leave group":
        eventually(family.is_gone, 5)


@pytest.mark.parametrize("options", [{}, {"max_jobs_per_child": 1}])
def test_a_thread_that_never_ends(start: Start, options: dict[str, object]) -> None:
    """A child with a thread left over cannot leave by itself: it is ended in time."""
    began = time.monotonic()
    family = _run(start, "stray thread", pool=options)
    if options:
        first, second = (one["pid"] for one in family.marks("start"))
        assert first != second
    assert 0 == family.stop()
    assert time.monotonic() - began < 12
    assert [] == _dead(family)
    eventually(family.is_gone, 5)


def test_a_handler_that_sets_signals_to_their_defaults(start: Start) -> None:
    """A signal to all ends its child during that attempt, which failed; it is tried again."""
    family = start(program(each("default signals", seconds=2.0)))
    family.awaits(1, "start")
    child = family.marks("start")[0]["pid"]
    eventually(lambda: not _catches(child, signal.SIGTERM))
    family.send(signal.SIGTERM, program=False)
    family.awaits(1, "end", attempt=2)
    assert 0 == family.stop()
    assert [] == _dead(family)


def test_what_a_handler_did_to_signals_ends_with_its_attempt(start: Start) -> None:
    """The next job of that child outlives a signal to all, as any other does."""
    jobs = [*each("default signals"), *each("sleep", seconds=1.0)]
    family = start(program(jobs))
    family.awaits(1, "start", what="sleep")
    family.send(signal.SIGTERM, program=False)
    family.awaits(1, "end", what="sleep", attempt=1)
    assert 1 == len({one["pid"] for one in family.marks("start")})
    assert 0 == family.stop()


def _catches(pid: int, signum: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(re.findall(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[0], 16)
    return bool(caught >> (signum - 1) & 1)


@pytest.mark.parametrize("action", ["leave and die", "leave and hang"])
def test_what_a_handler_started_ends_with_a_failed_child(start: Start, action: str) -> None:
    """A child that died, or was killed at its time limit, leaves no process of its own behind."""
    family = start(program([*each(action, limited=True), *each("good")]))
    family.awaits(2, "start", what=action)
    eventually(lambda: not any("sleep" in command for command in family.living().values()), 5)
    assert 0 == family.stop()
    eventually(family.is_gone, 5)


@each_start_method
def test_a_job_that_does_not_fit_into_its_child(start: Start, start_method: str) -> None:
    """A child that dies of the job before it runs it: a failed attempt, not a loop of children."""
    jobs: list[dict[str, object]] = [*each("good", padding=300_000_000), *each("good")]
    pool = {"start_method": start_method, "child_memory_limit": 350_000_000}
    family = start(program(jobs, pool=pool))
    family.awaits(5, "child")  # two for each of the two attempts, and one for the good job
    family.awaits(1, "end")
    assert 0 == family.stop()
    assert [f"{_PANIC} (exit code 1)"] == _dead(family)
    assert 5 == len(family.marks("child"))
    eventually(family.is_gone, 5)


@each_start_method
def test_a_job_that_its_child_can_take_but_not_decode(start: Start, start_method: str) -> None:
    """Too little memory is no fault of the payload: a failed attempt, and the child goes on."""
    jobs: list[dict[str, object]] = [*each("good", padding=200_000_000), *each("good")]
    pool = {"start_method": start_method, "child_memory_limit": 500_000_000}
    family = start(program(jobs, pool=pool))
    family.awaits(1, "end")
    eventually(lambda: "dead-lettered" in family.log(), 20)
    assert 0 == family.stop()
    assert [f"{_GIVEN_UP} handler panicked: MemoryError"] == _dead(family)
    assert 1 == len(family.marks("child"))
    eventually(family.is_gone, 5)
