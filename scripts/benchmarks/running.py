"""Runs the subjects, each role in a process of its own, and hands back what they measured.

It knows no library but pika, with which it looks at the queues. What is measured inside the
processes is in `recording.py`; what becomes of the numbers is in `report.py`.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker

from scripts.benchmarks.child_jobs import RUN
from scripts.benchmarks.report import Numbers

_LIMIT_SECONDS = 300.0
"""No role takes so long on any machine that is worth measuring on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Something to measure."""

    name: str
    module: str
    queue: str
    """Empty for one that shares out its jobs itself."""
    work: str = "work"
    """The role that drains the queue."""
    publish: str | None = "publish"
    idle: bool = True


QUEUEY, DRAMATIQ, PIKA, CELERY = "queuey-sync", "dramatiq", "pika loop", "celery"
PIKA_BATCHED, QUEUEY_MANY = "pika loop, batched acks", "queuey-sync enqueue_many"

SUBJECTS = (
    Subject(name=QUEUEY, module="queuey", queue="bench.queuey"),
    Subject(name=PIKA, module="pika", queue="bench.pika"),
    Subject(
        name=PIKA_BATCHED,
        module="pika",
        queue="bench.pika",
        work="work-batched",
        publish=None,
        idle=False,
    ),
    Subject(name=DRAMATIQ, module="dramatiq", queue="bench.dramatiq"),
    Subject(name=CELERY, module="celery", queue="bench.celery"),
)
MANY = Subject(name=QUEUEY_MANY, module="queuey", queue="bench.queuey", publish="publish-many")

BARE, PREFORK = "bare processes", "celery prefork"
BARE_PROCESSES = Subject(name=BARE, module="bare", queue="")
POOLS = (
    Subject(name=QUEUEY, module="queuey", queue="bench.queuey", work="work-children"),
    Subject(name=PREFORK, module="celery", queue="bench.celery", work="work-children"),
)


class BenchFailed(Exception):
    """A subject did not do what it was started for."""


class Bench:
    """Measures subjects on one broker."""

    def __init__(self, url: str, settle_seconds: float) -> None:
        self._url = url
        self._settle_seconds = settle_seconds

    def drain(self, subject: Subject, jobs: int) -> Numbers:
        """Fill the queue, let the broker settle, and have the subject drain it."""
        self._fill(subject, jobs)
        with self._role(subject, subject.work, jobs) as role:
            result = role.result()
            role.process.terminate()
            role.finish()
        self._check_empty(subject)
        return {
            "jobs_per_second": result["jobs"] / result["seconds"],
            "cpu_us_per_job": result["cpu_seconds"] / result["jobs"] * 1e6,
        }

    def drain_by_children(self, subject: Subject, jobs: int, loops: int) -> Numbers:
        """The same with child processes: from the first start of a handler to the last end."""
        self._fill(subject, jobs)
        with self._role(subject, subject.work, jobs, mode="children", loops=loops) as role:
            role.wait_until(lambda: role.runs() >= jobs)
            if subject.queue:
                role.process.terminate()
            role.finish()
            span_ns = role.span_ns(jobs)
        self._check_empty(subject)
        return {"jobs_per_second": jobs / span_ns * 1e9}

    def publish(self, subject: Subject, jobs: int) -> Numbers:
        """Have the subject publish, and count what arrived."""
        assert subject.publish is not None
        self._delete(subject.queue)
        with self._role(subject, subject.publish, jobs) as role:
            result = role.result()
            role.finish()
        arrived = self._look(subject.queue)[0]
        if arrived != jobs + 1:
            raise BenchFailed(f"{subject.name} published {jobs + 1} jobs and {arrived} arrived")
        return {
            "jobs_per_second": result["jobs"] / result["seconds"],
            "cpu_us_per_job": result["cpu_seconds"] / result["jobs"] * 1e6,
        }

    def idle(self, subject: Subject, jobs: int) -> tuple[list[float], float]:
        """Send a job now and then; returns their latencies in ms, and the idle CPU in percent."""
        self._delete(subject.queue)
        with self._role(subject, subject.work, jobs, mode="idle") as worker:
            worker.wait_until(lambda: self._look(subject.queue)[1] > 0)
            with self._role(subject, "trickle", jobs) as sender:
                sender.finish()
            result = worker.result()
            worker.process.terminate()
            worker.finish()
        return result["latencies_ms"], result["idle_cpu_percent"]

    def _fill(self, subject: Subject, jobs: int) -> None:
        if not subject.queue:
            return
        self._delete(subject.queue)
        with self._role(subject, "load", jobs) as role:
            role.finish()
        time.sleep(self._settle_seconds)

    def _check_empty(self, subject: Subject) -> None:
        left = self._look(subject.queue)[0] if subject.queue else 0
        if left:
            raise BenchFailed(f"{subject.name} left {left} jobs unacked")

    @contextlib.contextmanager
    def _role(
        self, subject: Subject, name: str, jobs: int, mode: str = "drain", loops: int = 0
    ) -> "Iterator[_Role]":
        settings = {
            "BENCH_URL": self._url,
            "BENCH_JOBS": str(jobs),
            "BENCH_MODE": mode,
            "BENCH_LOOPS": str(loops),
        }
        with tempfile.TemporaryDirectory(prefix="queuey-bench-") as folder:
            role = _Role(subject, name, Path(folder), settings)
            try:
                yield role
            finally:
                role.process.kill()
                role.process.wait()

    def _look(self, queue: str) -> tuple[int, int]:
        """How many messages are ready on the queue, and how many consume it."""
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            try:
                answer = connection.channel().queue_declare(queue, passive=True)
            except ChannelClosedByBroker:
                return 0, 0
            return answer.method.message_count or 0, answer.method.consumer_count or 0

    def _delete(self, queue: str) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            connection.channel().queue_delete(queue)


class _Role:
    """One process of one subject."""

    def __init__(self, subject: Subject, name: str, folder: Path, settings: dict[str, str]) -> None:
        self._title = f"{subject.name}: {name}"
        self._result = folder / "result"
        self._log = folder / "log"
        environment = {
            **os.environ,
            **settings,
            "BENCH_RESULT": str(self._result),
            "dramatiq_queue_prefetch": "64",
        }
        module = f"scripts.benchmarks.subject_{subject.module}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, name],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def result(self) -> dict[str, Any]:
        """What the process measured; waits for it."""
        self.wait_until(self._result.exists)
        measured: dict[str, Any] = json.loads(self._result.read_text())
        return measured

    def runs(self) -> int:
        """How often a handler has run in the children so far."""
        return self._result.stat().st_size // RUN.size if self._result.exists() else 0

    def span_ns(self, jobs: int) -> int:
        """From the first start of a handler to the last end; each job must have run once."""
        if self.runs() != jobs:
            raise self._failure(f"ran {self.runs()} times for {jobs} jobs")
        begins, ends = zip(*RUN.iter_unpack(self._result.read_bytes()), strict=True)
        return int(max(ends) - min(begins))

    def finish(self) -> None:
        """Wait for the process to end by itself, and well."""
        try:
            code = self.process.wait(_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._failure("did not end") from None
        if code:
            raise self._failure(f"ended with {code}")

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is true; asks too seldom to cost the measured process anything."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while not condition():
            if self.process.poll():
                raise self._failure(f"ended with {self.process.returncode}")
            if time.monotonic() > deadline:
                raise self._failure("took too long")
            time.sleep(0.1)

    def _failure(self, what: str) -> BenchFailed:
        return BenchFailed(f"{self._title} {what}\n{self._log.read_text(errors='replace')}")
