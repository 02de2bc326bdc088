"""The child's side of the process pool: get ready once, then run one attempt after the other.

`serve` is the main thread of a child process. Nothing but plain values leaves it. It knows no
broker and no worker; the parent's side is `child_process.py`.
"""

import os
import pickle
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from ctypes import c_ulonglong
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from queuey_sync.context import JobContext
from queuey_sync.errors import SoftTimeout, StartError
from queuey_sync.handlers import Handler, Handlers
from queuey_sync.observe.escaping import describe
from queuey_sync.pools.base import NEVER, Attempt, Kind, Result
from queuey_sync.pools.invoke import invoke, run_on_end, run_on_start
from queuey_sync.pools.link import ChildEnd
from queuey_sync.pools.signals import (
    end_with_the_parent,
    outlive_group_signals,
    outlive_group_signals_again,
)
from queuey_sync.shutdown import Shutdown

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a child needs to begin; crosses once, when it starts."""

    handlers: bytes
    """The `Handlers` of the app, pickled."""
    initializer: Callable[[], object] | None
    memory_limit: int | None
    """In bytes of address space."""
    reports_memory: bool


@dataclass(frozen=True, slots=True)
class Order:
    """One attempt, in plain values."""

    number: int
    """The attempts of a child are numbered from 1."""
    job_type: str
    payload: bytes
    context: dict[str, Any]
    soft_limit: timedelta | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an order."""

    result: Result
    resident: int
    """Bytes of memory in use after it, where that is wanted."""


def no_result(error: BaseException) -> Result:
    """What an attempt came to whose result could not cross."""
    return Result(kind=Kind.RETRYABLE, reason=f"handler panicked: no result: {describe(error)}")


class _Child:
    """This process, as a child. Owner: its main thread."""

    def __init__(self, setup: Setup, begun: c_ulonglong, stopping: Shutdown) -> None:
        self._pid = os.getpid()
        self._begun = begun
        self._watcher = stopping.watcher()
        self._reports_memory = setup.reports_memory
        handlers: Handlers[Any] = pickle.loads(setup.handlers)  # noqa: S301 - our parent wrote it
        self._app = handlers
        self._handlers: dict[str, Handler] = handlers.by_name()
        if setup.initializer is not None:
            setup.initializer()
        run_on_start(handlers)

    def run(self, order: Order) -> bytes:
        """Run one attempt; returns its `Answer`, pickled."""
        self._begun.value = order.number
        limit = order.soft_limit
        attempt = Attempt(
            self._handlers[order.job_type],
            order.payload,
            JobContext(**order.context, watcher=self._watcher),
            soft_limit=limit,
            interrupt=NEVER if limit is None else _Alarm(limit.total_seconds()),
        )
        result = invoke(attempt, self._app.arounds)
        if os.getpid() != self._pid:  # the handler forked: its copy must not answer for the child
            os._exit(0 if result.kind is Kind.SUCCEEDED else 1)
        resident = _memory().resident if self._reports_memory else 0
        try:
            return pickle.dumps(Answer(result, resident))
        except BaseException as error:  # noqa: BLE001 - too large, or a policy that cannot be sent
            return pickle.dumps(Answer(no_result(error), resident))

    def end(self) -> None:
        """Call what is to run after the last attempt."""
        run_on_end(self._app)


def serve(far: socket.socket, setup: Setup, begun: c_ulonglong, news: Connection) -> None:
    """Say what is wrong with this child, if anything is, and run what comes until nothing does.

    Args:
        far: The line to the runner.
        setup: What to begin with.
        begun: Where the parent reads which attempt was begun, when this process has died.
        news: Its end says that the worker is stopping.
    """
    end = ChildEnd(far)
    child = _start(setup, begun, news)
    if isinstance(child, str):
        end.send(pickle.dumps(child))
        return
    end.send(pickle.dumps(""))
    with suppress(EOFError):
        while True:
            end.send(child.run(end.receive()))
            outlive_group_signals_again()
    child.end()


def _start(setup: Setup, begun: c_ulonglong, news: Connection) -> _Child | str:
    os.setpgid(0, 0)
    outlive_group_signals()
    stopping = Shutdown()
    _die_with_the_parent(news, stopping)
    try:
        if setup.memory_limit is not None:
            _limit_memory(setup.memory_limit)
        return _Child(setup, begun, stopping)
    except StartError as error:
        return str(error)
    except BaseException as error:  # noqa: BLE001 - whatever the app's import or set-up raises
        return describe(error)


class _Alarm(AbstractContextManager[None]):
    """Raises `SoftTimeout` in the main thread, also out of a blocking call. Owner: that thread."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._armed = False

    def __enter__(self) -> None:
        self._armed = True
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_raised: object) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, _signum: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise SoftTimeout


class _Memory(NamedTuple):
    """What this process has of it, in bytes."""

    addresses: int
    resident: int


def _memory() -> _Memory:
    addresses, resident, *_ = Path("/proc/self/statm").read_bytes().split()
    return _Memory(int(addresses) * _PAGE, int(resident) * _PAGE)


def _limit_memory(size: int) -> None:
    needed = _memory().addresses
    if needed >= size:  # Python goes on without more, and each job would fail
        raise StartError(f"child_memory_limit: {size} bytes, but a child begins with {needed}")
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    size = size if most == resource.RLIM_INFINITY else min(size, most)
    resource.setrlimit(resource.RLIMIT_AS, (size, most))


def _die_with_the_parent(news: Connection, stopping: Shutdown) -> None:
    """See to it that this process ends when its parent does, whatever either is doing then."""
    _close_forkservers_pipe()
    end_with_the_parent()
    arguments = (news, stopping)
    threading.Thread(target=_watch, args=arguments, name="queuey-parent", daemon=True).start()


def _watch(news: Connection, stopping: Shutdown) -> None:
    parent = parent_process()
    assert parent is not None  # noqa: S101 - this is a child
    if news in wait([parent.sentinel, news]):
        stopping.stop()
        wait([parent.sentinel])
    pid = os.getpid()
    with suppress(ProcessLookupError):  # a handler left the group that `_start` made
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def _close_forkservers_pipe() -> None:
    """Let the forkserver see its parent die: each child holds the pipe that tells it open.

    It is private, so nothing is done where it is not found.
    """
    forkserver: Any = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    descriptor = getattr(forkserver, "_forkserver_alive_fd", None)
    if isinstance(descriptor, int):
        forkserver._forkserver_alive_fd = None  # noqa: SLF001 - as said
        os.close(descriptor)
