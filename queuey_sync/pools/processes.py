"""The process pool: each slot has a child of its own, which may crash, leak or hang alone.

A slot's runner sends an attempt to its own child and waits, no longer than the time limit.
`ProcessPool` is what users give as ``pool=``; one child is `child_process.py`, and what the
forkserver imports is `preload.py`.
"""

import json
import logging
import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, Literal, cast

from queuey_sync.errors import ConfigurationError, StartError
from queuey_sync.handlers import Handlers, Preparation
from queuey_sync.observe.escaping import describe
from queuey_sync.pools import child
from queuey_sync.pools.base import STOPPED, Attempt, Kind, Result, timed_out
from queuey_sync.pools.child_process import PRELOAD_VARIABLE, ChildDied, ChildProcess, Context
from queuey_sync.pools.link import ChildGone
from queuey_sync.pools.sendable import check_handlers, check_sendable
from queuey_sync.pools.signals import group_signals_held
from queuey_sync.retry import check_integer

log = logging.getLogger(__name__)

_PRELOAD = "queuey_sync.pools.preload"


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
        self._context = cast("Context", context)
        self._modules = check_handlers(handlers)
        self._preparation = pickle.dumps(Preparation(handlers.preparations)).hex()
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
            wanted = {
                "parent": os.getpid(),
                "path": sys.path,
                "preparation": self._preparation,
                "modules": self._modules,
            }
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

    def __init__(self, options: ProcessPool, context: Context, setup: child.Setup) -> None:
        self._options = options
        self._context = context
        self._setup = setup
        self._lock = threading.Lock()
        self._stopping = False
        """Written once, under `_lock`, by the thread in `Worker.run`, as is `_abandoned`."""
        self._abandoned = False
        self._live: ChildProcess | None = None
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
            except ChildDied as death:
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
        error: str | None
        try:
            live = self._make()
            if live is None:
                return
            error = live.start()
        except CancelledError:
            self._discard()
            return
        except ChildGone:
            error = None
        except Exception as fault:  # noqa: BLE001 - whatever multiprocessing and the system raise
            error = describe(fault)
        if error == "" and self._admit():
            return
        how = self._discard().end() if self._live is not None else ""
        if error is None:
            error = f"it died as it started ({how}); its standard error may say why"
        if not self._stopping:
            raise StartError(f"a child process could not start: {error}")

    def _make(self) -> ChildProcess | None:
        """A child to start, unless the worker stops: a stop that comes later finds it."""
        options = self._options
        with self._lock:
            if not self._stopping:
                self._live = ChildProcess(
                    self._context,
                    self._setup,
                    options.max_jobs_per_child,
                    options.max_memory_per_child,
                )
            return self._live

    def _admit(self) -> bool:
        """Whether the child may run jobs; a stop that came before has killed it."""
        with self._lock:
            if self._live is None or self._stopping:
                return False
            self._live.started = True
            return True

    def _discard(self) -> ChildProcess:
        with self._lock:
            live, self._live = self._live, None
        assert live is not None  # noqa: S101 - the runner is the only one who lets go of it
        return live

    # Called by the thread in `Worker.run`.

    def stop(self) -> None:
        """Tell the child of it, and start no more."""
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
