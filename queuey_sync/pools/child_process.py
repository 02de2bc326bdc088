"""One child process as its runner sees it: start it, have it run attempts, end it.

It knows one child, from start to end; when there is one, and what its death means, is decided in
`processes.py`. What lies between the two is `link.py`, and the child's side is `child.py`.
"""

import math
import os
import pickle
import random
import signal
import socket
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess

from queuey_sync.context import JobContext
from queuey_sync.pools import child
from queuey_sync.pools.base import Attempt, Result
from queuey_sync.pools.link import ChildGone, Link
from queuey_sync.pools.signals import group_signals_held

PRELOAD_VARIABLE = "QUEUEY_SYNC_PRELOAD"
"""Tells the forkserver what to preload; set until it has begun."""
_CLOSE_LIMIT = 5.0
"""Seconds that a child may take to leave by itself."""
_JITTER = 0.2
"""Children are recycled up to this part early, so that they do not all go at once."""
_LOOK = 0.1
"""Seconds between two looks at a child that is to end."""
_FORKSERVER_END = 2.0
"""Seconds that a forkserver may take to be known as dead when it hears no more."""
Context = ForkServerContext | SpawnContext
_multiprocessing = threading.Lock()
"""Held to start a child and to read an exit code: each start reads those of all other children, and
of two threads that read the same one at the same time, one is told something wrong."""
_PLAIN_FIELDS = tuple(name for name in JobContext.__struct_fields__ if name != "watcher")


class ChildDied(Exception):
    """The child is gone, talks no sense, or is over the time limit."""

    def __init__(self, *, begun: bool, timed_out: bool = False) -> None:
        super().__init__()
        self.begun = begun
        self.timed_out = timed_out


def _start(process: BaseProcess) -> None:
    """Start a process, by a new forkserver if the old one is about to be found dead."""
    deadline = time.monotonic() + _FORKSERVER_END
    while True:
        try:
            process.start()
        except ConnectionRefusedError:  # it was not heard, so nothing has begun
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return


class ChildProcess:
    """One child. Owner: the slot's runner, but for `stop` and `kill`.

    Args:
        context: How to start it.
        setup: What it begins with.
        max_jobs: After about so many jobs it is worn out.
        max_memory: With more bytes than these after a job it is worn out.
    """

    def __init__(
        self, context: Context, setup: child.Setup, max_jobs: int | None, max_memory: int | None
    ) -> None:
        self._max_memory = max_memory
        self._max_jobs = max_jobs
        if max_jobs is not None:
            self._max_jobs = max_jobs - random.randint(0, int(max_jobs * _JITTER))  # noqa: S311
        self._jobs = 0
        self.worn_out = False
        self._begun = context.RawValue("Q", 0)
        """Written by the child, read here when it has died."""
        self._news_for_child, self._news = context.Pipe(duplex=False)
        self._near, self._far = socket.socketpair()
        arguments = (self._far, setup, self._begun, self._news_for_child)
        self._process = context.Process(target=child.serve, args=arguments)
        self._blocks = isinstance(context, ForkServerContext)
        """Whether to start a process takes as long as the forkserver imports the app."""
        self._starting: Future[None] = Future()
        """Done when there is a process; a stop that comes before cancels it."""
        self._link: Link | None = None
        self.started = False
        """Guarded by the slot's lock."""

    # Called by the runner.

    def start(self) -> str:
        """Start it, and return what it says is wrong with it.

        Raises:
            CancelledError: A stop came before there was a process, and there will be none.
            ChildGone: It died as it started.
        """
        if self._blocks:
            threading.Thread(target=self._begin, name="queuey-start", daemon=True).start()
        else:
            self._begin()  # not in a thread that ends: the kernel takes its end for the parent's
        self._starting.result()
        self._far.close()
        self._news_for_child.close()
        self._link = Link(self._near, self._process.sentinel, self._alive)
        error: str = pickle.loads(self._link.receive(None))  # noqa: S301 - our child wrote it
        return error

    def _begin(self) -> None:
        """Have a process; ends it at once if nobody waits for it any more."""
        fault: BaseException | None = None
        try:
            with group_signals_held(), _multiprocessing:
                _start(self._process)
        except BaseException as error:  # noqa: BLE001 - the runner raises it
            fault = error
        os.environ.pop(PRELOAD_VARIABLE, None)  # the forkserver has read it by now
        if not self._starting.set_running_or_notify_cancel():
            self.end()
        elif fault is not None:
            self._starting.set_exception(fault)
        else:
            self._starting.set_result(None)

    def run(self, attempt: Attempt) -> Result:
        """Run one attempt; raises `ChildDied`."""
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
            raise ChildDied(begun=self._begun.value == number) from None
        except TimeoutError:
            raise ChildDied(begun=True, timed_out=True) from None
        self.worn_out = self._jobs == self._max_jobs
        try:
            answer: child.Answer = pickle.loads(message)  # noqa: S301 - our child wrote it
        except BaseException as error:  # noqa: BLE001 - a policy of the job's own may do anything
            return child.no_result(error)
        if self._max_memory is not None and answer.resident > self._max_memory:
            self.worn_out = True
        return answer.result

    def end(self) -> str:
        """End the child with all that it started, if it is not dead yet, and say how it died."""
        self.kill()
        return self._let_go(math.inf)

    def close(self) -> None:
        """Let the child leave; one that does not is killed."""
        self._let_go(time.monotonic() + _CLOSE_LIMIT)

    def _let_go(self, kill_at: float) -> str:
        """Close everything, descriptors of multiprocessing's too, and say how the child died."""
        self._link = None  # it knows this object: without it, what is left goes at once
        for one in (self._near, self._far, self._news, self._news_for_child):
            one.close()
        if self._process.pid is None:
            return "exit code unknown"
        while (code := self._exit_code()) is None:
            if time.monotonic() >= kill_at:
                self.kill()
                kill_at = math.inf
            wait([self._process.sentinel], timeout=_LOOK)
        with _multiprocessing:
            self._process.close()
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

    # Called from any thread, until the runner lets go of it.

    def stop(self) -> None:
        """Tell the child; one that has not begun to live is ended, for it has nothing to finish."""
        self._news.close()
        if not self.started and not self._starting.cancel():
            self.kill()

    def kill(self) -> None:
        """Kill the child and its process group."""
        if self._process.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
