"""The store beside huey's and beside no library: the same roles as on a broker, on a file.

Both settings of ``synchronous`` are measured, each the same for all. Everybody gets a fresh file,
on the disk of the temporary folder.
"""

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from scripts.benchmarks import report
from scripts.benchmarks.running import QUEUEY, QUEUEY_MANY, Bench, Subject

SYNCHRONOUS = ("normal", "full")
HUEY, LOOP = "huey", "bare insert loop"

_QUEUEY = Subject(name=QUEUEY, module="queuey", queue="jobs", idle=False)
_HUEY = Subject(name=HUEY, module="huey", queue="task", idle=False)
_LOOP = Subject(name=LOOP, module="insert", queue="bodies", idle=False)
_MANY = Subject(name=QUEUEY_MANY, module="queuey", queue="jobs", publish="publish-many")
"""The queue of each is the table where its jobs wait."""

DRAINS = (_QUEUEY, _HUEY)
PUBLISHES = (_QUEUEY, _LOOP, _HUEY, _MANY)
Measure = Callable[[Subject], report.Numbers]


class StoreBench(Bench):
    """Measures subjects on a file; the folder goes with `close`."""

    def __init__(self, synchronous: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="queuey-bench-store-")
        self._file = Path(self._folder.name) / "jobs.db"
        super().__init__(f"sqlite:///{self._file}?synchronous={synchronous}", settle_seconds=0)

    def close(self) -> None:
        """Delete what is left."""
        self._folder.cleanup()

    def _look(self, queue: str) -> tuple[int, int]:
        with closing(sqlite3.connect(self._file)) as database:
            (count,) = database.execute(f"SELECT count(*) FROM {queue}").fetchone()
        return count, 0

    def _delete(self, queue: str) -> None:  # noqa: ARG002 - there is one for each file
        for file in self._file.parent.iterdir():
            file.unlink()


def drain_promises(rounds: report.Rounds) -> list[report.Promise]:
    """What the project promises of draining a file."""
    rate = report.ratio(rounds, "jobs_per_second", QUEUEY, HUEY)
    return [report.Promise(f"jobs/s, as multiples of {HUEY}'s", rate, at_least=2)]


def publish_promises(rounds: report.Rounds) -> list[report.Promise]:
    """What the project promises of enqueuing into a file."""

    def rate(name: str, peer: str) -> report.Spread:
        return report.ratio(rounds, "jobs_per_second", name, peer)

    return [
        report.Promise(f"enqueue, as a part of a {LOOP}'s", rate(QUEUEY, LOOP), at_least=0.8),
        report.Promise(f"enqueue, as multiples of {HUEY}'s", rate(QUEUEY, HUEY), at_least=1),
        report.Promise(
            f"enqueue_many, as multiples of {HUEY}'s", rate(QUEUEY_MANY, HUEY), at_least=3
        ),
    ]
