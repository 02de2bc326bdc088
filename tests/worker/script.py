"""Handlers that do as they are told, in threads and in child processes alike, and leave a trace.

What a handler noted in the memory of a child would be lost, so it is noted in a file. `Script` is
the handler of most tests; the functions below it are steps to give it, or run around it. Children
import this, so it imports nothing but the library.
"""

import base64
import ctypes
import os
import pickle
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from queuey_sync import Fatal, JobContext, RetryPolicy, SoftTimeout, Stopping, current_job
from tests.support.waiting import eventually

T = TypeVar("T")


class Notes(Generic[T]):
    """A list that threads and processes append to. Its file goes with the one that made it."""

    def __init__(self) -> None:
        descriptor, name = tempfile.mkstemp(prefix="queuey-notes-")
        os.close(descriptor)
        self._path = Path(name)
        weakref.finalize(self, os.unlink, name)  # not in a child: unpickling makes no new one

    def append(self, item: T) -> int:
        """Add something that can be pickled; returns how many there are then, itself included."""
        with self._path.open("ab", buffering=0) as file:
            file.write(base64.b64encode(pickle.dumps(item)) + b"\n")  # one write, so never mixed
            return self._path.read_bytes()[: file.tell()].count(b"\n")

    def __iter__(self) -> Iterator[T]:
        whole, _, _ = self._path.read_bytes().rpartition(b"\n")
        return (pickle.loads(base64.b64decode(line)) for line in whole.split())

    def __len__(self) -> int:
        return self._path.read_bytes().count(b"\n")


class Door:
    """Shut until the test opens it; a step that waits is its `wait`."""

    def __init__(self) -> None:
        self._opened = Notes[None]()

    def open(self) -> None:
        self._opened.append(None)

    def wait(self, _: JobContext) -> None:
        eventually(lambda: len(self._opened), timeout=30, message="the door is open")


class Run(NamedTuple):
    """One run of a script."""

    job: Any
    context: dict[str, Any]
    pid: int
    at: float
    """On the monotonic clock, which all processes of a machine share."""


class Script:
    """A handler that does what it is told, run by run, and keeps what it saw.

    Each step is raised if it is an exception, called with the context if it can be called, and else
    returned; after the last one, every run succeeds. `always` is the step of every run. For child
    processes the steps must be of a kind that can be pickled.
    """

    def __init__(self, *steps: Any, always: Any = None) -> None:
        self._steps = steps
        self._always = always
        self._notes = Notes[Run]()

    def handle(self, job: Any, ctx: JobContext) -> object:
        context = {name: getattr(ctx, name) for name in ctx.__struct_fields__ if name != "watcher"}
        number = self._notes.append(Run(job, context, os.getpid(), time.monotonic()))
        step = self._steps[number - 1] if number <= len(self._steps) else self._always
        if isinstance(step, BaseException):
            raise step
        return step(ctx) if callable(step) else step

    @property
    def runs(self) -> list[JobContext]:
        """The contexts of the runs, in their order."""
        return [JobContext(**run.context) for run in self._notes]

    @property
    def jobs(self) -> list[Any]:
        """Their jobs."""
        return [run.job for run in self._notes]

    @property
    def pids(self) -> list[int]:
        """The processes they were in."""
        return [run.pid for run in self._notes]

    @property
    def times(self) -> list[float]:
        """When they began, on the monotonic clock."""
        return [run.at for run in self._notes]


class Picky(Script):
    """Fails always, and has a policy of its own for one customer."""

    def __init__(self, policy: Any) -> None:
        super().__init__(always=ValueError("x"))
        self._policy = policy

    def retry_policy(self, job: Any) -> RetryPolicy | None:
        policy: RetryPolicy | None = self._policy
        return policy if job.customer == "ada" else None


class Racer:
    """A handler that ends just before or just after a time, and notes nothing: it may be cut."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def handle(self, job: Any, _: JobContext) -> None:
        end = time.monotonic() + self._seconds + (job.seq % 21 - 12) / 10_000
        while time.monotonic() < end:
            pass


# Steps: failures.


class Unprintable(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Exiting(Exception):
    """Would end the process of whoever wants to read it."""

    def __str__(self) -> str:
        raise SystemExit(7)


class Unpicklable(Exception):
    """Cannot leave its process."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("it stays here")


class HalfPicklable(Exception):
    """Can be pickled, and not be made again from that."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


def fail(kind: type[BaseException], *details: Any) -> NoReturn:
    """Raise; the last detail is the context. For what cannot be sent to a child as it is."""
    raise kind(*details[:-1])


def give(value: T, _: JobContext) -> T:
    """Return something that would be raised if it were a step itself."""
    return value


def fail_at_length(_: JobContext) -> NoReturn:
    """Raise 10 MB of text."""
    raise ValueError("long " * 2_000_000)


def kill(_: JobContext) -> None:
    """Die as by the kernel's memory killer."""
    os.kill(os.getpid(), signal.SIGKILL)


def crash(_: JobContext) -> None:
    """Die of a fault in C."""
    ctypes.string_at(0)


def leave(_: JobContext) -> NoReturn:
    """End the process without a word."""
    os._exit(3)


def leave_at_first(ctx: JobContext) -> None:
    """End the process in the first attempt only."""
    if ctx.attempt == 1:
        os._exit(9)


def devour(_: JobContext) -> None:
    """Ask for more memory than the limit of the tests allows."""
    bytearray(4 << 30)


# Steps: taking long.


def nap(seconds: float, _: JobContext) -> None:
    """Sleep in one call into C."""
    time.sleep(seconds)


def spin(_: JobContext) -> NoReturn:
    """Never end, in Python code that swallows every `Exception`."""
    while True:
        try:
            time.sleep(0.001)
        except Exception:
            continue


def spin_until_warned(cleaned: Notes[str], _: JobContext) -> None:
    """Clean up when the soft limit comes, and succeed."""
    try:
        spin(_)
    except SoftTimeout:
        cleaned.append("cleaned up")


def spin_though_warned(ignored: Notes[str], _: JobContext) -> None:
    """Swallow the soft limit and go on."""
    spin_until_warned(ignored, _)
    spin(_)


def have_another_sleep(pids: Notes[int], _: JobContext) -> None:
    """Start a process that sleeps for ever, and wait for it."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        pids.append(process.pid)


def sleep_until_stop(seen: Notes[tuple[bool, bool]], ctx: JobContext) -> None:
    """Sleep as a handler should that wants to leave early."""
    before = ctx.stopping
    ctx.watcher.sleep("30s")
    seen.append((before, ctx.stopping))


def leave_at_the_stop(ctx: JobContext) -> NoReturn:
    """Give the job back when the worker stops."""
    ctx.watcher.wait("30s")
    raise Stopping


# To be run around handlers, or before the first one.


@contextmanager
def framed(seen: Notes[str], name: str) -> Iterator[None]:
    """Note when it is entered, and how it is left."""
    seen.append(f"into {name}")
    try:
        yield
    except BaseException as error:
        seen.append(f"out of {name}: {type(error).__name__}")
        raise
    seen.append(f"out of {name}")


@contextmanager
def translated() -> Iterator[None]:
    """Make a `KeyError` fatal."""
    try:
        yield
    except KeyError as error:
        raise Fatal("no such customer") from error


@contextmanager
def uncommitted() -> Iterator[None]:
    """Fail at the end of a handler that succeeded."""
    yield
    raise ValueError("commit failed")


@contextmanager
def knowing_its_job(seen: Notes[UUID | None]) -> Iterator[None]:
    """Note the current job on the way in, and on the way out."""
    seen.append(_current_id())
    yield
    seen.append(_current_id())


def _current_id() -> UUID | None:
    context = current_job()
    return None if context is None else context.job_id


def note_start(pids: Notes[int]) -> None:
    """Note that this process gets ready."""
    pids.append(os.getpid())


def refuse_to_start() -> NoReturn:
    """Fail before the first job."""
    raise RuntimeError("no model")
