"""Several processes on one store: forks, workers that stand still or die, and waking each other."""

import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.process.store_fork_program import CHILDREN, JOBS
from tests.process.store_program import SLOW
from tests.process.store_rounds import ROOT, Round
from tests.support.waiting import eventually


@pytest.mark.parametrize("options", ["", "?synchronous=full"])
def test_forks_while_the_store_is_in_use(tmp_path: Path, options: str) -> None:
    """Parent and children enqueue at the same time; nothing is lost, mixed up or damaged."""
    store = tmp_path / "jobs.db"
    # Later Pythons warn of forks beside threads, which are the point here.
    command = [sys.executable, "-W", "ignore", "-m", "tests.process.store_fork_program"]
    done = subprocess.run(
        [*command, f"sqlite:///{store}{options}"],
        cwd=ROOT,
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    with closing(sqlite3.connect(store)) as connection:
        assert [("ok",)] == connection.execute("PRAGMA integrity_check").fetchall()
        bodies = connection.execute("SELECT body FROM jobs").fetchall()
    assert len({body.partition(b'"payload":')[2] for (body,) in bodies}) == (CHILDREN + 3) * JOBS
    assert len(bodies) == (CHILDREN + 3) * JOBS


def test_a_killed_worker_gives_back_at_once(tmp_path: Path) -> None:
    """Another worker of the same machine has its job long before the lease ends."""
    with Round(tmp_path) as round_:
        killed = round_.start("work")
        assert round_.start("produce", SLOW, 1).wait(20) == 0
        eventually(lambda: len(round_.marks("start")) == 1)
        round_.kill(killed)
        began = time.monotonic()
        round_.start("work")
        eventually(lambda: len(round_.marks("start")) == 2, 15)
        assert time.monotonic() - began < 15
        assert [] == [path for path in tmp_path.iterdir() if f"-{killed.pid}-" in path.name]


def test_a_worker_that_stands_still(tmp_path: Path) -> None:
    """Its lease ends, another has the job; when it goes on, its settle fails and is counted."""
    with Round(tmp_path, "?lease=1s") as round_:
        still = round_.start("work")
        assert round_.start("produce", SLOW, 1).wait(20) == 0
        eventually(lambda: len(round_.marks("start")) == 1)
        still.send_signal(signal.SIGSTOP)
        other = round_.start("work")
        eventually(lambda: len(round_.marks("start")) == 2, 15)
        still.send_signal(signal.SIGCONT)
        assert still.wait(20) == 1
        ((_, failures, *_),) = round_.marks("failures")
        assert failures == 1
        eventually(round_.is_empty, 15)
        other.send_signal(signal.SIGTERM)
        assert other.wait(20) == 0
        assert [1, 0] == [mark.number for mark in round_.marks("failures")]


def test_a_worker_hears_of_other_processes_soon(tmp_path: Path) -> None:
    """A job of another process begins well before the once-a-second look at leases."""
    count = 15
    with Round(tmp_path) as round_:
        worker = round_.start("work")
        assert round_.start("produce", 1, 1).wait(20) == 0
        eventually(lambda: round_.marks("start"))
        assert round_.start("produce", 100, count, 0.3).wait(20) == 0
        eventually(lambda: len({mark.number for mark in round_.marks("start")}) == count + 1)
        confirmed = {mark.number: mark.time for mark in round_.marks("confirmed")}
        started = {mark.number: mark.time for mark in round_.marks("start") if not mark.turn}
        assert statistics.median(started[n] - confirmed[n] for n in started) < 0.2
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
