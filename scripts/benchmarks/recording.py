"""What a measured process does: play its role, take the times, leave the result.

The same for every subject, so that all are measured by one rule. A subject's module gives its roles
to `play`; its handler calls `record`, which costs one counter step a job, or one write where the
handlers run in child processes. `running.py` starts the processes.
"""

import functools
import itertools
import json
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from scripts.benchmarks.child_jobs import RUN, burn

URL = os.environ["BENCH_URL"]
JOBS = int(os.environ["BENCH_JOBS"])
THREADS = 8
CHILDREN = 2
PREFETCH = 64
LEVELS = 10
"""The queue's priority levels: an argument of every subject's queue."""

TEXT = "Dear Ada, thank you for your order."
"""One field of the job; the other is when it was sent, on the clock of ``time.monotonic_ns()``."""

_RESULT = Path(os.environ["BENCH_RESULT"])
_LOOPS = int(os.environ["BENCH_LOOPS"])
_SETTLE_SECONDS = 1.0
_IDLE_SECONDS = 10.0


def play(roles: dict[str, Callable[[], None]]) -> None:
    """Play the role that the command line names."""
    roles[sys.argv[1]]()


def leave(result: dict[str, object]) -> None:
    """Leave the result where the parent looks for it, whole or not at all."""
    draft = _RESULT.with_suffix(".draft")
    draft.write_text(json.dumps(result))
    draft.rename(_RESULT)


def cpu_seconds() -> float:
    """The processor time of this process so far, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class _Drain:
    """Times a full queue from the first handler's start to the last one's."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._last = JOBS - 1
        self._began = self._cpu_began = 0.0

    def record(self, _sent_ns: int) -> None:
        number = next(self._count)
        if number == 0:
            self._began, self._cpu_began = time.perf_counter(), cpu_seconds()
        elif number == self._last:
            seconds, cpu = time.perf_counter() - self._began, cpu_seconds() - self._cpu_began
            leave({"jobs": JOBS, "seconds": seconds, "cpu_seconds": cpu})


class _Idle:
    """Times single jobs from before the enqueue to the handler's start, then the worker at rest."""

    def __init__(self) -> None:
        self._latencies_ns: list[int] = []

    def record(self, sent_ns: int) -> None:
        latency_ns = time.monotonic_ns() - sent_ns
        if not sent_ns:  # the first job of all warms both sides up
            return
        self._latencies_ns.append(latency_ns)
        if len(self._latencies_ns) == JOBS:
            threading.Thread(target=self._rest).start()

    def _rest(self) -> None:
        time.sleep(_SETTLE_SECONDS)
        began, cpu_began = time.perf_counter(), cpu_seconds()
        time.sleep(_IDLE_SECONDS)
        cpu, seconds = cpu_seconds() - cpu_began, time.perf_counter() - began
        latencies_ms = [latency / 1e6 for latency in self._latencies_ns]
        leave({"latencies_ms": latencies_ms, "idle_cpu_percent": 100 * cpu / seconds})


class _Children:
    """Does the work of a job in a child process; all children write into one file when it ran."""

    def record(self, _sent_ns: int) -> None:
        began = time.monotonic_ns()
        burn(_LOOPS)
        os.write(self._file, RUN.pack(began, time.monotonic_ns()))

    @functools.cached_property
    def _file(self) -> int:
        return os.open(_RESULT, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


_MODES: dict[str, type[_Drain | _Idle | _Children]] = {
    "drain": _Drain,
    "idle": _Idle,
    "children": _Children,
}
record = _MODES[os.environ["BENCH_MODE"]]().record
"""Called by the handler, with the job's sending time."""


def time_publishing(publish: Callable[[int], object]) -> None:
    """Time the publishing of all jobs, one by one, on a connection that is up."""
    publish(time.monotonic_ns())
    time_batch(lambda: [publish(time.monotonic_ns()) for _ in range(JOBS)])


def time_batch(publish_all: Callable[[], object]) -> None:
    """Time the publishing of all jobs."""
    began, cpu_began = time.perf_counter(), cpu_seconds()
    publish_all()
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu_began
    leave({"jobs": JOBS, "seconds": seconds, "cpu_seconds": cpu})


def publish_now_and_then(publish: Callable[[int], object]) -> None:
    """Publish single jobs to an idle worker."""
    publish(0)
    time.sleep(_SETTLE_SECONDS)
    for _ in range(JOBS):
        publish(time.monotonic_ns())
        time.sleep(random.uniform(0.02, 0.05))
