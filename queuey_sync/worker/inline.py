"""Jobs in the thread that asks: `InlineWorker`, for tests, and `InlineBackend`, ``inline:``.

Both send every job through the very code of a worker, from the encoded body to the settling call;
only threads and waiting are left out. A time limit is not kept here, for nobody watches the
thread. Read next: `slots.py`; `queuey_sync.testing` is what users see of it.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import Context, ContextVar
from dataclasses import replace
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from queuey_sync.backends.base import Backend, Consumption, Depth, Inbox
from queuey_sync.backends.base import Listener as BackendListener
from queuey_sync.backends.memory.backend import MemoryBackend
from queuey_sync.backends.memory.clock import ManualClock
from queuey_sync.durations import Duration, format_duration
from queuey_sync.envelope import Envelope
from queuey_sync.errors import ConfigurationError, Interrupt, JobError, QueueyError, ShutDown
from queuey_sync.handlers import Around, Handlers, resolve_policies
from queuey_sync.observe.escaping import LONGEST_NAME, one_line
from queuey_sync.pools.base import Attempt, Result
from queuey_sync.pools.invoke import invoke
from queuey_sync.pools.threads import ThreadPool
from queuey_sync.queues import QueueConfig, QueueSet
from queuey_sync.retry import check_duration, check_integer
from queuey_sync.shutdown import Backoff, Watcher
from queuey_sync.worker.checks import Limits
from queuey_sync.worker.dead_letters import DeadLetterHook
from queuey_sync.worker.events import Listener
from queuey_sync.worker.settle import Settler
from queuey_sync.worker.slots import Slots, Work

log = logging.getLogger(__name__)

_calling: ContextVar[bool] = ContextVar("queuey_sync_calling_thread", default=False)
"""Set inside the context that is made for one run of a job here."""
MOST_RUNS = 10_000
"""How many runs one call makes before it takes the jobs for endless."""


def in_callers_thread() -> bool:
    """Whether a job runs now in the thread of whoever asked for it, whose things it must leave."""
    return _calling.get()


class InlineWorker:
    """A worker without threads: what waits runs in the thread that calls `run`.

    Args:
        queue_set: Whose queues to work on.
        handlers: What runs the jobs; also those that are registered later.
        on_dead_letter: Called with a `DeadLetter` for every job that is given up on.
    """

    def __init__(
        self,
        queue_set: type[QueueSet],
        handlers: Handlers[Any],
        on_dead_letter: DeadLetterHook | None = None,
    ) -> None:
        # One at a time, so that each is the first of its queue at the moment when it is taken.
        self._configs = [replace(member.config, prefetch=1) for member in queue_set]
        self._handlers = handlers
        self._on_dead_letter = on_dead_letter
        self._lock = threading.Lock()
        self._started = False  # guarded by _lock

    def run(
        self,
        backend: Backend,
        clock: ManualClock,
        *,
        within: Duration | None = None,
        limit: int = MOST_RUNS,
        raise_errors: bool = False,
    ) -> int:
        """Run what waits until nothing does; when all that is left waits for its time, jump there.

        Args:
            backend: Where the jobs wait; it delivers before `Backend.consume` and the settling
                calls return, as the memory backend does.
            clock: What it measures delays by.
            within: Jump no further than this from now, but there in the end.
            limit: How many runs are too many.
            raise_errors: Stop and raise what a handler raises, unless it is a `JobError`.

        Returns:
            How many runs there were; each attempt is one.

        Raises:
            ConfigurationError: An argument is wrong, or two handlers have one job type.
            StartError: An ``on_start`` function failed.
            QueueyError: There are more runs than `limit`.
        """
        check_integer(limit, "limit", 1, 1_000_000_000)
        until = None if within is None else clock.now + check_duration(within, "within", zero=True)
        thread = _CallingThread(self._handlers, raise_errors=raise_errors)
        self._start(thread)
        inbox: Inbox = SimpleQueue()
        ends: list[BaseException | None] = []
        settler = self._settler()
        slots = Slots(
            Work(
                inbox=inbox,
                pool=thread,
                handlers=self._handlers.by_name(),
                policies=resolve_policies(self._handlers, {}, {}),
                limits={one.job_type.name: Limits(None, None) for one in self._handlers},
                settler=settler,
                watcher=Watcher(),
                longest_delay=backend.longest_delay,
                permits=thread.permits(inbox, lambda: clock.jump(until), limit),
            ),
            1,
            ended=ends.append,
            overdue=_never_called,
            watchdog_died=_never_called,
        )
        consumption = backend.consume(self._configs, inbox, Listener(SimpleQueue(), settler))
        try:
            slots.run()
        finally:
            slots.close()
            consumption.stop(0)
            consumption.close()
        for error in filter(None, ends):
            raise error
        return thread.runs.total()

    def _start(self, thread: ThreadPool) -> None:
        with self._lock:
            if not self._started:
                thread.start()
            self._started = True

    def _settler(self) -> Settler:
        levels = {config.full_name: config.top_level for config in self._configs}
        return Settler(levels, self._on_dead_letter, _never_called)


def _never_called(_: object) -> None:
    """For what cannot happen without time limits, or on a backend that takes every settling."""


class _CallingThread(ThreadPool):
    """The one slot: it counts runs, and keeps an error that is not for the job alone."""

    def __init__(self, handlers: Handlers[Any], *, raise_errors: bool) -> None:
        super().__init__(handlers)
        self.runs: Counter[str] = Counter()
        """By job type."""
        self._error: BaseException | None = None
        # Ctrl-C, or pytest's own fail() and skip(), speak to whoever runs the jobs.
        self._outcomes: tuple[type[BaseException], ...] = (JobError, Interrupt)
        if not raise_errors:
            self._outcomes += (Exception, SystemExit)

    def permits(self, inbox: Inbox, jump: Callable[[], bool], limit: int) -> Iterator[None]:
        """One for each delivery, which is in the inbox by then."""
        while True:
            if self._error is not None:
                raise self._error
            while inbox.empty():
                if not jump():
                    return
            if self.runs.total() >= limit:
                raise QueueyError(self._too_many())
            yield

    def _too_many(self) -> str:
        job_type, runs = self.runs.most_common(1)[0]
        return (
            f"jobs still wait after {self.runs.total()} runs: job `{job_type}` ran {runs} times,"
            " and may come back for ever; if not, give a higher limit"
        )

    def run(self, attempt: Attempt) -> Result:
        """Run one attempt, with no `contextvars` of the caller's, for a worker has none of them."""
        self.runs[attempt.context.job_type] += 1
        witness = _Witness()
        arounds: list[Around] = [lambda: witness, *self._handlers.arounds]
        context = Context()
        context.run(_calling.set, True)  # noqa: FBT003 - as contextvars have it
        result = context.run(invoke, attempt, arounds)
        if witness.error is not None and not isinstance(witness.error, self._outcomes):
            self._error = witness.error
        return result


class _Witness(AbstractContextManager[None]):
    """Sees what leaves a job, and lets it go."""

    error: BaseException | None = None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.error = error


class InlineBackend(Backend):
    """Runs each job at once, in the thread that enqueues it; nothing ever waits here.

    What a job enqueues runs after it. Waits are left out: a failed job is tried again at once,
    until its policy gives it up. Whatever becomes of a job is logged, and nothing of it is raised,
    as it would be with a broker.

    Args:
        queue_set: Whose jobs they are.
        handlers: What runs them; also those that are registered later.
    """

    def __init__(self, queue_set: type[QueueSet], handlers: Handlers[Any]) -> None:
        self._worker = InlineWorker(queue_set, handlers)
        self._closed = False  # written once, to True
        self._thread = threading.local()
        """Has, as ``waiting``, the jobs of a thread that runs some now."""

    def declare(self, configs: Sequence[QueueConfig]) -> None:
        """Nothing to do."""

    def publish(self, envelope: Envelope, delay: timedelta | None = None) -> None:
        """Run a job; after the one that runs in this thread, if one does."""
        if delay:
            _log_wait("delayed", envelope, delay)
        self._run(lambda waiting: waiting.publish(envelope, delay))

    def defer(self, envelope: Envelope, delay: timedelta) -> None:
        """Run a job as `publish` does."""
        _log_wait("deferred", envelope, delay)
        self._run(lambda waiting: waiting.defer(envelope, delay))

    def _run(self, place: Callable[[MemoryBackend], None]) -> None:
        if self._closed:
            raise ShutDown
        waiting: MemoryBackend | None = getattr(self._thread, "waiting", None)
        if waiting is not None:
            place(waiting)
            return
        clock = ManualClock()
        self._thread.waiting = waiting = MemoryBackend(clock)
        try:
            place(waiting)
            self._worker.run(waiting, clock)
        except QueueyError:
            log.exception("inline: the jobs that still wait in this thread are dropped")
        finally:
            del self._thread.waiting

    def consume(
        self,
        configs: Sequence[QueueConfig],
        inbox: Inbox,
        listener: BackendListener,
        reconnect: Backoff | None = None,
    ) -> Consumption:
        """Refuse: no worker is needed."""
        text = "inline: jobs run where they are enqueued, and none is left for a worker"
        listener.ended(ConfigurationError(text))
        return MemoryBackend().consume(configs, inbox, listener, reconnect)

    def depths(self, configs: Sequence[QueueConfig]) -> list[Depth]:
        """Nothing, on every queue."""
        return [Depth(ready=0, held=0, dead=0, consumers=0) for _ in configs]

    def close(self) -> None:
        """Take no more."""
        self._closed = True

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed


def _log_wait(kind: str, envelope: Envelope, delay: timedelta) -> None:
    job_type = one_line(envelope.job_type, LONGEST_NAME)
    wait = format_duration(delay)
    log.info("inline: job %s (%s), %s by %s, runs now", envelope.job_id, job_type, kind, wait)
