"""One store, several producers and workers, kills at random, and the accounting afterwards."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple, Self

from queuey_sync.backends.sqlite.backend import SQLiteBackend
from tests.process.store_program import turns
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


class Mark(NamedTuple):
    """What a program has written down."""

    event: str
    number: int
    turn: int
    process: int
    time: float


class Round:
    """A store in a folder, and the programs that use it.

    Args:
        folder: Where the store and the marks are.
        options: What follows the path in the URL.
    """

    def __init__(self, folder: Path, options: str = "") -> None:
        self.store = folder / "jobs.db"
        self.killed: set[int] = set()
        """The processes that were killed."""
        self._crashes: list[str] = []
        self._marks_file = folder / "marks"
        self.url = f"sqlite:///{self.store}{options}"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Nothing to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs."""
        self._stack.close()

    def start(self, *arguments: object) -> "subprocess.Popen[bytes]":
        """Start a program: ``work``, or ``produce`` with a first number, a count, a pause."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.process.store_program", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "QUEUEY_URL": self.url, "MARKS_FILE": str(self._marks_file)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if arguments[0] == "work" else None,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """End a program as a power cut would."""
        if process.poll() is None:
            process.kill()
            process.wait()
            self.killed.add(process.pid)
        elif process.returncode:
            self._crashes.append(f"{process.args!r} ended by itself with {process.returncode}")

    def marks(self, event: str) -> list[Mark]:
        """The marks of one kind, in order."""
        if not self._marks_file.exists():
            return []
        marks = [Mark(*json.loads(line)) for line in self._marks_file.read_text().splitlines()]
        return [mark for mark in marks if mark.event == event]

    def look(self, query: str) -> list[tuple[object, ...]]:
        """Ask the store something."""
        with closing(sqlite3.connect(self.store, timeout=30)) as connection:
            return connection.execute(query).fetchall()

    def is_empty(self) -> bool:
        """Whether nothing waits, is held or in hand."""
        return self.look("SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM held)") == [
            (0, 0)
        ]

    def finish(self, timeout: float) -> None:
        """Have one more worker do what is left, and stop it."""
        worker = self.start("work")
        eventually(self.is_empty, timeout, "the store is empty")
        eventually(lambda: worker.pid in [mark.number for mark in self.marks("listening")])
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0

    def faults(self) -> list[str]:
        """What is not as it must be, now that all is done."""
        backend = SQLiteBackend(self.url)
        backend.depths([])  # strikes off whoever was killed and is not missed yet
        backend.close()
        faults = self._crashes
        faults += [str(row) for row in self.look("PRAGMA integrity_check") if row != ("ok",)]
        ended = {(mark.number, mark.turn) for mark in self.marks("end")}
        bodies = self.look("SELECT body FROM dead")
        dead = [json.loads(str(body, "utf-8"))["payload"]["number"] for (body,) in bodies]  # type: ignore[call-overload]
        for mark in self.marks("confirmed"):
            last = len(turns(mark.number)) - 1
            is_dead = turns(mark.number)[last] == "die"
            if dead.count(mark.number) != is_dead:
                faults.append(f"job {mark.number} is dead {dead.count(mark.number)} times")
            if not is_dead and (mark.number, last) not in ended:
                faults.append(f"job {mark.number} is lost")
        starts = defaultdict(list)
        for mark in self.marks("start"):
            starts[mark.number, mark.turn].append(mark.process)
        faults += [
            f"run {run} started in {processes}, and not all but the last were killed"
            for run, processes in starts.items()
            if not set(processes[:-1]) <= self.killed
        ]
        for table in ("leases", "consumers", "consumed"):
            if self.look(f"SELECT * FROM {table}"):
                faults.append(f"something is left in {table}")
        faults += [f"settle failures: {mark}" for mark in self.marks("failures") if mark.number]
        return faults


def kill_round(folder: Path, jobs: int, seed: int, options: str = "") -> Round:
    """Four producers and three workers, each killed now and then, until all is enqueued and done.

    A producer that was killed is followed by one that goes on behind the number that may or may
    not have been enqueued.
    """
    rng = random.Random(seed)
    with Round(folder, options) as round_:
        share = jobs // 4
        ends = [share * (index + 1) for index in range(4)]
        producers = {end: round_.start("produce", end - share, share, 0.001) for end in ends}
        workers = [round_.start("work") for _ in range(3)]
        while producers:
            time.sleep(rng.uniform(0.05, 0.6))
            if rng.random() < 0.5:
                index = rng.randrange(len(workers))
                round_.kill(workers[index])
                workers[index] = round_.start("work")
                continue
            end = rng.choice(list(producers))
            round_.kill(producers[end])
            numbers = [mark.number for mark in round_.marks("confirmed")]
            first = max((n for n in numbers if end - share <= n < end), default=end - share - 2) + 2
            if first < end:
                producers[end] = round_.start("produce", first, end - first, 0.001)
            else:
                del producers[end]
        for worker in workers:
            round_.kill(worker)
        round_.finish(60)
        return round_
