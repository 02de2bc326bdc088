"""The jobs of `pool_program.py`: each does one good or evil thing in a child, between two marks.

Marks go to a file, one line each and written in one piece, so that they survive any end of the
process. Imported by the program, by the forkserver and by children: what only fails or is slow in
the last two is asked for by a variable.
"""

import contextlib
import ctypes
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from queuey_sync import Job, JobContext, QueueSet, Queuey, RetryPolicy, queue

MARKS_FILE = os.environ.get("MARKS_FILE", os.devnull)
TROUBLE = os.environ.get("TROUBLE", "")
"""What goes wrong in a child before it runs anything."""
IMPORTED_BY = os.getpid()


def mark(event: str, **values: object) -> None:
    """Leave a mark."""
    line = json.dumps({"event": event, "pid": os.getpid(), **values}) + "\n"
    with open(MARKS_FILE, "ab", buffering=0) as marks:  # noqa: PTH123 - Path.open may not buffer 0
        marks.write(line.encode())


class Queues(QueueSet, prefix=os.environ.get("PREFIX", "pool")):
    """One queue."""

    WORK = queue(prefetch=16, retry=RetryPolicy.fixed(2, "100ms"))


class Act(Job[Queues], queue=Queues.WORK, name="pool.act"):
    """A job that does what is asked for."""

    what: str
    number: int = 0
    seconds: float = 0.0
    padding: str = ""


class Limited(Job[Queues], queue=Queues.WORK, name="pool.limited", timeout="1s"):
    """The same with a time limit."""

    what: str
    number: int = 0
    seconds: float = 0.0
    padding: str = ""


app = Queuey(Queues, url=os.environ.get("BROKER", "memory:"))


@app.handler(Act)
@app.handler(Limited)
def act(job: Any, ctx: JobContext) -> None:
    """Do what the job says, between two marks."""
    about = {"what": job.what, "number": job.number, "attempt": ctx.attempt}
    mark("start", **about, at=time.time())
    told = _ACTIONS[job.what](job)
    mark("end", **about, told=told, at=time.time())


@app.on_start
def begin() -> None:
    """Fail or take its time, if that is asked for."""
    mark("child", parent=os.getppid(), imported_by=IMPORTED_BY)
    if TROUBLE == "on_start":
        raise OSError("no such model")
    if TROUBLE.startswith("slow"):
        time.sleep(10)


def initializer() -> None:
    """Fail, if that is asked for."""
    if TROUBLE == "initializer":
        raise OSError("no such log")
    if TROUBLE == "stray thread":
        threading.Thread(target=time.sleep, args=(1000,)).start()
        raise OSError("with a thread left over")
    if TROUBLE == "leaves":
        os._exit(7)


def _sleep(job: Any) -> None:
    time.sleep(job.seconds)


def _sleep_in_c(job: Any) -> None:
    """Hold the interpreter's lock all the while."""
    ctypes.PyDLL(None).sleep(int(job.seconds))


def _burn(job: Any) -> None:
    end = time.monotonic() + job.seconds
    while time.monotonic() < end:
        sum(range(1000))


def _segfault(_job: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def _eat(_job: Any) -> None:
    eaten = []
    while True:
        eaten.append(bytearray(16_000_000))


def _terminate_subprocess(_job: Any) -> int:
    process = subprocess.Popen(["sleep", "1000"])
    process.terminate()
    return process.wait(10)


def _leave_subprocess(_job: Any) -> None:
    subprocess.Popen(["sleep", "1000"])


def _leave_subprocess_and_die(job: Any) -> None:
    _leave_subprocess(job)
    os._exit(3)


def _leave_subprocess_and_hang(job: Any) -> None:
    _leave_subprocess(job)
    time.sleep(1000)


def _open_files(kind: str, pid: int | None = None) -> dict[int, str]:
    """The sockets or pipes of a process, by their descriptors, without its standard streams."""
    found = {}
    for link in Path(f"/proc/{pid or os.getpid()}/fd").iterdir():
        with contextlib.suppress(OSError):
            found[int(link.name)] = str(link.readlink())
    return {at: name for at, name in found.items() if at > 2 and name.startswith(f"{kind}:")}


def _sockets(_job: Any) -> dict[str, list[str]]:
    """The sockets of this child and those of the worker."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    of_child, of_worker = (_open_files("socket", pid) for pid in (os.getpid(), parent.pid))
    return {"child": list(of_child.values()), "worker": list(of_worker.values())}


def _write_to_every_pipe(_job: Any) -> None:
    """Send the parent what is no result."""
    for descriptor in (*_open_files("pipe"), *_open_files("socket")):
        if descriptor != resource_tracker.getfd():
            with contextlib.suppress(OSError):
                os.write(descriptor, b"\0" * 7 + b"\10" + b"junkjunk")
    time.sleep(1000)


def _fork(_job: Any) -> None:
    """Both of the two go on."""
    os.fork()


def _fork_and_exit(_job: Any) -> None:
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)


def _close_everything(_job: Any) -> None:
    os.closerange(3, 4096)


def _close_the_line(_job: Any) -> None:
    for descriptor in _open_files("socket"):
        os.close(descriptor)


def _leave_group(job: Any) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    os.setpgid(0, os.getpgid(parent.pid or 0))
    time.sleep(job.seconds)


def _leave_group_with_another(job: Any) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    subprocess.Popen(["sleep", "1000"], process_group=os.getpgid(parent.pid or 0))
    _leave_group(job)


def _new_session(job: Any) -> None:
    if os.fork() == 0:  # a leader of a group cannot
        os.setsid()
        time.sleep(job.seconds)
        os._exit(0)
    time.sleep(job.seconds)


def _nest(_job: Any) -> list[int | None]:
    """Have child processes of its own, started in each way."""
    codes = []
    for context in (
        multiprocessing.get_context("forkserver"),
        multiprocessing.get_context("spawn"),
    ):
        process = context.Process(target=os._exit, args=(5,))
        process.start()
        process.join()
        codes.append(process.exitcode)
    return codes


def _stray_thread(_job: Any) -> None:
    threading.Thread(target=time.sleep, args=(1000,), name="stray").start()


def _default_signals(job: Any) -> None:
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(signum, signal.SIG_DFL)
    time.sleep(job.seconds)


_ACTIONS: dict[str, Callable[[Any], object]] = {
    "good": lambda _job: None,
    "sleep": _sleep,
    "c": _sleep_in_c,
    "burn": _burn,
    "kill": lambda _job: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": _segfault,
    "exit": lambda _job: os._exit(3),
    "eat": _eat,
    "terminate": _terminate_subprocess,
    "leave": _leave_subprocess,
    "leave and die": _leave_subprocess_and_die,
    "leave and hang": _leave_subprocess_and_hang,
    "sockets": _sockets,
    "junk": _write_to_every_pipe,
    "fork": _fork,
    "fork and exit": _fork_and_exit,
    "close all": _close_everything,
    "close the line": _close_the_line,
    "leave group": _leave_group,
    "leave group with another": _leave_group_with_another,
    "new session": _new_session,
    "nest": _nest,
    "stray thread": _stray_thread,
    "default signals": _default_signals,
}


_IS_PROGRAM = os.environ.setdefault("POOL_PROGRAM", str(os.getpid())) == str(os.getpid())
"""False in a child and in the forkserver."""

if TROUBLE == "import" and not _IS_PROGRAM:
    raise OSError("no such library")
if TROUBLE == "slow import" and not _IS_PROGRAM:
    time.sleep(10)
if TROUBLE == "slow preload" and not _IS_PROGRAM:
    mark("preload")
    time.sleep(10)
