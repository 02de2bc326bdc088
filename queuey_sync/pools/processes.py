"""The process pool: each slot has a child of its own, which may crash, leak or hang alone.

A slot's runner sends an attempt to its own child and waits, no longer than the time limit.
`ProcessPool` is what users give as ``pool=``; the child's side is `child.py`, what lies between is
`link.py`, and what the forkserver imports is `preload.py`.
"""

import json
import logging
import multiprocessing
import os
import pickle
import random
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any, Literal, cast

from queuey_sync.context import JobContext
from queuey_sync.errors import ConfigurationError, StartError
from queuey_sync.handlers import Handlers
from queuey_sync.observe.escaping import describe
from queuey_sync.pools import child
from queuey_sync.pools.base import STOPPED, Attempt, Kind, Result, timed_out
from queuey_sync.pools.link import ChildGone, Link
from queuey_sync.pools.sendable import check_handlers, check_sendable
from queuey_sync.pools.signals import group_signals_held
from queuey_sync.retry import check_integer

log = logging.getLogger(__name__)

PRELOAD_VARIABLE = "QUEUEY_SYNC_PRELOAD"
"""Tells the forkserver what to preload; set until it has begun."""
_PRELOAD = "queuey_sync.pools.preload"
_CLOSE_LIMIT = 5.0
"""Seconds that a child may take to leave by itself."""
_JITTER = 0.2
"""Children are recycled up to this part early, so that they do not all go at once."""
_LOOK = 0.1
"""Seconds between two looks at a child that is to end."""
_Context = ForkServerContext | SpawnContext
_multiprocessing = threading.Lock()
"""Held to start a child and to read an exit code: each start reads those of all other children, and
of two threads that read the same one at the same time, one is told something wrong."""
_PLAIN_FIELDS = tuple(name for name in JobContext.__struct_fields__ if name != "watcher")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPool:
    """Handlers run in child processes, one for each slot: ``Worker(..., pool=ProcessPool())``.

    ``pool="process"`` is short for it, with these defaults.

    Args:
        start_method: ``"forkserver"`` imports the app once for all children; ``"spawn"`` starts
            each one from nothing.
        max_jobs_per_child: After this many jobs at most, a child is replaced.
        max_memory_per_child: A child that holds more bytes of memory after a job is replaced.
        child_memory_limit: How many bytes of address space a child may have: a handler that asks
            for more gets `MemoryError`.
        initializer: Called first in each child, when the app is imported: what a process needs of
            its own, such as a log. It must be importable.

    Raises:
        ConfigurationError: An option is wrong.

    >>> ProcessPool(max_jobs_per_child=1000).start_method
    'forkserver'
    """

    start_method: Literal["forkserver", "spawn"] = "forkserver"
    max_jobs_per_child: int | None = None
    max_memory_per_child: int | None = None
    child_memory_limit: int | None = None
    initializer: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        if self.start_method not in ("forkserver", "spawn"):
            raise ConfigurationError(
                f"start_method: expected forkserver or spawn, got {self.start_method!r}"
            )
        for name in ("max_jobs_per_child", "max_memory_per_child", "child_memory_limit"):
            value = getattr(self, name)
            if value is not None:
                check_integer(value, name, 1, sys.maxsize)
        if self.initializer is not None:
            check_sendable("initializer", self.initializer)

    def __call__(self, handlers: Handlers[Any]) -> "Children":
        """The pool of one worker; see `queuey_sync.pools.base.PoolFactory`."""
        return Children(self, handlers)


class Children:
    """The children of one worker.

    Args:
        options: How to have them.
        handlers: What they run.

    Raises:
        ConfigurationError: A handler cannot be sent to a child.
    """

    unit = "process"
    enforces_limits = True

    def __init__(self, options: ProcessPool, handlers: Handlers[Any]) -> None:
        self._options = options
        context = multiprocessing.get_context(options.start_method)
        self._context = cast("_Context", context)
        self._modules = check_handlers(handlers)
        self._setup = child.Setup(
            handlers=pickle.dumps(handlers),
            initializer=options.initializer,
            memory_limit=options.child_memory_limit,
            reports_memory=options.max_memory_per_child is not None,
        )
        self._slots: list[ChildSlot] = []
        """Appended to by the runners, read by the thread in `Worker.run`."""
        self._stopping = False
        """Written by that thread, before it reads the slots."""

    def default_concurrency(self, prefetch: int) -> int:
        """No more children than processors that this process may use."""
        return min(prefetch, len(os.sched_getaffinity(0)))

    def start(self) -> None:
        """Prepare what all children need; the first of them starts the forkserver."""
        # It starts multiprocessing's resource tracker, which lets SIGTERM in where it is started,
        # and is itself ended by a SIGHUP that is not held back.
        with group_signals_held():
            self._context.Lock()
        if self._options.start_method == "forkserver":
            multiprocessing.set_forkserver_preload([_PRELOAD])
            wanted = {"path": sys.path, "modules": self._modules}
            os.environ[PRELOAD_VARIABLE] = json.dumps(wanted)

    def slot(self) -> "ChildSlot":
        """A new slot, whose child starts when it is first needed."""
        slot = ChildSlot(self._options, self._context, self._setup)
        self._slots.append(slot)
        if self._stopping:
            slot.stop()
        return slot

    def stop(self) -> None:
        """Have ``ctx.stopping`` say so in every child."""
        self._stopping = True
        for slot in self._slots:
            slot.stop()

    def abandon(self) -> bool:
        """Kill every child."""
        for slot in self._slots:
            slot.abandon()
        return True


class ChildSlot:
    """One slot and its child. Its runner's thread owns it, but for `stop` and `abandon`."""

    def __init__(self, options: ProcessPool, context: _Context, setup: child.Setup) -> None:
        self._options = options
        self._context = context
        self._setup = setup
        self._lock = threading.Lock()
        self._stopping = False
        """Written once, under `_lock`, by the thread in `Worker.run`, as is `_abandoned`."""
        self._abandoned = False
        self._live: _Live | None = None
        """Replaced under `_lock` by the runner."""

    # Called by the runner.

    def ready(self) -> None:
        """Have a child that can run something, a new one where the last one died or wore out."""
        if self._live is not None and self._live.worn_out and not self._stopping:
            self._discard().close()
        if self._live is None and not self._stopping:
            self._start()

    def run(self, attempt: Attempt) -> Result:
        """Run one attempt in the child; what becomes of the child is a result too."""
        fresh = False
        while True:
            self.ready()
            if self._live is None:
                return STOPPED
            try:
                return self._live.run(attempt)
            except _Died as death:
                how = self._discard().end()
                if self._abandoned:
                    return STOPPED
                if death.timed_out and attempt.time_limit is not None:
                    return timed_out(attempt.time_limit)
                if death.begun or fresh:  # one that had just begun to live died of the job
                    reason = f"handler panicked: process died ({how})"
                    return Result(kind=Kind.RETRYABLE, reason=reason)
                log.warning("a child process died while it was idle (%s): starting another", how)
                fresh = True

    def close(self) -> None:
        """Let the child leave by itself, within a limit."""
        if self._live is not None:
            self._discard().close()

    def _start(self) -> None:
        live = _Live(self._options, self._context, self._setup)
        with self._lock:
            self._live = live
        error: str | None
        try:
            error = live.start()
        except ChildGone:
            error = None
        except (OSError, EOFError, RuntimeError) as fault:
            error = describe(fault)
        if error == "":
            with self._lock:
                live.started = True
            return
        how = self._discard().end()
        if error is None:
            error = f"it died as it started ({how}); its standard error may say why"
        if not self._stopping:
            raise StartError(f"a child process could not start: {error}")

    def _discard(self) -> "_Live":
        with self._lock:
            live, self._live = self._live, None
        assert live is not None  # noqa: S101 - the runner is the only one who lets go of it
        return live

    # Called by the thread in `Worker.run`.

    def stop(self) -> None:
        """Tell the child; one that has not begun to live is ended, for it has nothing to finish."""
        with self._lock:
            self._stopping = True
            if self._live is not None:
                self._live.stop()

    def abandon(self) -> None:
        """Kill the child, with all that it started."""
        with self._lock:
            self._abandoned = True
            if self._live is not None:
                self._live.kill()


class _Died(Exception):
    """The child is gone, talks no sense, or is over the time limit."""

    def __init__(self, *, begun: bool, timed_out: bool = False) -> None:
        super().__init__()
        self.begun = begun
        self.timed_out = timed_out


class _Live:
    """One child process, from start to end. Owner: the slot's runner."""

    def __init__(self, options: ProcessPool, context: _Context, setup: child.Setup) -> None:
        self._max_memory = options.max_memory_per_child
        self._max_jobs = options.max_jobs_per_child
        if self._max_jobs is not None:
            self._max_jobs -= random.randint(0, int(self._max_jobs * _JITTER))  # noqa: S311
        self._jobs = 0
        self.worn_out = False
        self._begun = context.RawValue("Q", 0)
        """Written by the child, read here when it has died."""
        self._news_for_child, self._news = context.Pipe(duplex=False)
        self._near, self._far = socket.socketpair()
        arguments = (self._far, setup, self._begun, self._news_for_child)
        self._process = context.Process(target=child.serve, args=arguments)
        self._link: Link | None = None
        self.started = False
        """Guarded by the slot's lock."""

    def start(self) -> str:
        """Start it, and return what it says is wrong with it; raises `ChildGone`."""
        with group_signals_held(), _multiprocessing:
            self._process.start()
        if self._news.closed:  # a stop came before there was a process to kill
            self.kill()
        self._far.close()
        self._news_for_child.close()
        self._link = Link(self._near, self._process.sentinel, self._alive)
        error: str = pickle.loads(self._link.receive(None))  # noqa: S301 - our child wrote it
        os.environ.pop(PRELOAD_VARIABLE, None)  # the forkserver has read it by now
        return error

    def run(self, attempt: Attempt) -> Result:
        """Run one attempt; raises `_Died`."""
        assert self._link is not None  # noqa: S101 - it has been started
        number = self._jobs = self._jobs + 1
        order = child.Order(
            number,
            attempt.context.job_type,
            attempt.payload,
            {name: getattr(attempt.context, name) for name in _PLAIN_FIELDS},
            attempt.soft_limit,
        )
        try:
            self._link.send(order, attempt.context.deadline)
            message = self._link.receive(attempt.context.deadline)
        except ChildGone:
            raise _Died(begun=self._begun.value == number) from None
        except TimeoutError:
            raise _Died(begun=True, timed_out=True) from None
        self.worn_out = self._jobs == self._max_jobs
        try:
            answer: child.Answer = pickle.loads(message)  # noqa: S301 - our child wrote it
        except BaseException as error:  # noqa: BLE001 - a policy of the job's own may do anything
            return child.no_result(error)
        if self._max_memory is not None and answer.resident > self._max_memory:
            self.worn_out = True
        return answer.result

    def stop(self) -> None:
        """Tell the child of the stop; from any thread."""
        self._news.close()
        if not self.started:
            self.kill()

    def kill(self) -> None:
        """Kill the child and its process group; from any thread."""
        if self._process.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()

    def end(self) -> str:
        """End the child with all that it started, if it is not dead yet, and say how it died."""
        self.kill()
        return self._let_go()

    def close(self) -> None:
        """Let the child leave; one that does not is killed."""
        killer = threading.Timer(_CLOSE_LIMIT, self.kill)
        killer.start()
        self._let_go()
        killer.cancel()

    def _let_go(self) -> str:
        for one in (self._near, self._far, self._news, self._news_for_child):
            one.close()
        if self._process.pid is None:
            return "exit code unknown"
        while (code := self._exit_code()) is None:
            wait([self._process.sentinel], timeout=_LOOK)
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def _exit_code(self) -> int | None:
        with _multiprocessing:
            return self._process.exitcode

    def _alive(self) -> bool:
        if not _multiprocessing.acquire(blocking=False):
            return True  # as far as can be seen now
        try:
            return self._process.is_alive()
        finally:
            _multiprocessing.release()
