"""Signals to a whole group of processes, as a terminal or a supervisor sends them.

Only the parent heeds them, and every child finishes its job.
"""

import multiprocessing
import os
import random
import signal
import threading
import time
from contextlib import suppress
from typing import Literal

import pytest

from queuey_sync import Handlers, ProcessPool
from queuey_sync.pools.child_process import ChildProcess
from queuey_sync.pools.link import Link
from tests.process.pool_workers import Family, Start, each, each_start_method, program
from tests.support.shop import Shop
from tests.support.waiting import eventually

_SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
_each_signal = pytest.mark.parametrize("signum", _SIGNALS, ids=lambda signum: signum.name)


def _await_program(family: Family) -> None:
    """From then on it has its signal handlers."""
    family.awaits(1, "program")


@pytest.mark.parametrize("seed", range(10))
@each_start_method
def test_a_stop_of_all_at_a_random_moment(start: Start, start_method: str, seed: int) -> None:
    """While children start, work and are replaced: each job that was begun ends; the exit is 0."""
    rng = random.Random(seed)
    family = start(
        program(
            each(*["sleep"] * 100, seconds=0.05),
            concurrency=2,
            pool={"start_method": start_method, "max_jobs_per_child": 5},
        )
    )
    _await_program(family)
    time.sleep(rng.uniform(0, 1.5))
    signum = rng.choice(_SIGNALS)
    with suppress(ProcessLookupError):
        os.killpg(family.process.pid, signum)
    family.send(signum, program=False)  # children are in groups of their own
    assert 0 == family.wait(10), family.log()
    began = sorted(one["number"] for one in family.marks("start"))
    assert began == sorted(one["number"] for one in family.marks("end")), family.log()
    assert len(began) == len(set(began))
    assert 100 - len(began) == family.marks("left")[0]["pending"]
    assert 0 == family.settle_failures()
    assert "Traceback" not in family.log(), family.log()
    eventually(family.is_gone, 5)


@_each_signal
@each_start_method
def test_all_but_the_parent_outlive_a_signal(
    start: Start, start_method: str, signum: signal.Signals
) -> None:
    """With the parent spared, jobs go on, and a child that is killed is still replaced."""
    jobs = [*each("sleep", seconds=0.5), *each("kill", "good")]
    family = start(program(jobs, pool={"start_method": start_method}))
    family.awaits(1, "start", what="sleep")
    before = family.living()
    family.send(signum, program=False)
    family.awaits(1, "end", what="good")
    assert 1 == len(family.marks("end", what="sleep", attempt=1))
    replaced = {one["pid"] for one in family.marks("child")}
    assert set(before) - replaced <= set(family.living()), "the helpers are the same as before"
    assert 0 == family.stop()
    assert "Traceback" not in family.log(), family.log()
    assert "resource_tracker" not in family.log(), family.log()
    eventually(family.is_gone, 5)


@each_start_method
def test_a_handlers_own_subprocess_can_be_terminated(start: Start, start_method: str) -> None:
    """What a handler starts hears SIGTERM as any program does."""
    family = start(program(each("terminate"), pool={"start_method": start_method}))
    family.awaits(1, "end", told=-signal.SIGTERM)
    assert 0 == family.stop()


@pytest.mark.parametrize("helper", ["forkserver", "resource_tracker"])
def test_a_helper_that_is_killed_is_replaced(start: Start, helper: str) -> None:
    """Without its forkserver or its resource tracker a worker goes on."""
    family = start(program(each("good", "sleep", "kill", "good", seconds=1.0)))
    family.awaits(1, "start", what="sleep")
    doomed = next(pid for pid, command in family.living().items() if helper in command)
    os.kill(doomed, signal.SIGKILL)
    family.awaits(1, "end", number=3)
    assert 0 == family.stop()
    eventually(family.is_gone, 5)


@each_start_method
def test_a_stop_while_a_child_starts_slowly(start: Start, start_method: str) -> None:
    """A child that is not ready is not waited for, and its job stays where it is."""
    trouble = "slow import" if start_method == "spawn" else "slow"
    family = start(program(each("good"), pool={"start_method": start_method}), TROUBLE=trouble)
    _await_program(family)
    if start_method == "forkserver":
        family.awaits(1, "child")
    else:
        eventually(lambda: len(family.living()) == 3)
        time.sleep(0.5)  # any moment of the import will do
    began = time.monotonic()
    assert 0 == family.stop(), family.log()
    assert time.monotonic() - began < 2
    assert [] == family.marks("start")
    assert [1] == [one["pending"] for one in family.marks("left")]
    assert 0 == family.settle_failures()
    eventually(family.is_gone, 5)


def test_a_stop_while_the_app_is_preloaded(start: Start) -> None:
    """A stop that comes before there is a child does not wait for the import."""
    family = start(program(each("good")), TROUBLE="slow preload")
    family.awaits(1, "preload")
    began = time.monotonic()
    assert 0 == family.stop(), family.log()
    assert time.monotonic() - began < 2
    assert [] == family.marks("start")
    assert [1] == [one["pending"] for one in family.marks("left")]
    eventually(family.is_gone, 5)


def test_a_slot_that_is_made_after_the_stop_starts_no_child() -> None:
    """A runner that is late finds that there is nothing to do."""
    pool = ProcessPool()(Handlers(Shop))
    pool.stop()
    slot = pool.slot()
    slot.ready()
    children = multiprocessing.active_children()
    slot.close()
    assert [] == children


def test_a_stop_in_the_moment_before_a_child_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner has looked and is about to make one: it hears of the stop and makes none."""
    slot = ProcessPool()(Handlers(Shop)).slot()
    make, started = slot._make, []

    def make_late() -> object:
        slot.stop()
        return make()

    def start(process: ChildProcess) -> str:
        started.append(process)
        return ""

    monkeypatch.setattr(slot, "_make", make_late)
    monkeypatch.setattr(ChildProcess, "start", start)
    slot.ready()
    slot.close()
    assert [] == started


@each_start_method
def test_a_stop_in_the_moment_a_child_is_started(
    monkeypatch: pytest.MonkeyPatch, start_method: Literal["forkserver", "spawn"]
) -> None:
    """There is no process yet to kill: nobody waits for it, and it is ended once it is there."""
    pool = ProcessPool(start_method=start_method)(Handlers(Shop))
    pool.start()
    slot = pool.slot()
    begin, waited_for = ChildProcess._begin, []

    def begin_late(process: ChildProcess) -> None:
        slot.stop()
        begin(process)

    monkeypatch.setattr(ChildProcess, "_begin", begin_late)
    monkeypatch.setattr(Link, "receive", lambda link, _: waited_for.append(link))
    slot.ready()
    slot.close()
    assert [] == waited_for
    eventually(lambda: "queuey-start" not in {one.name for one in threading.enumerate()})
    assert [] == multiprocessing.active_children()
