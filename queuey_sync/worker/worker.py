"""The worker: start, work, drain, stop, in that order, in `Worker.run`.

The thread that calls `run` does no broker I/O and runs no user code: it waits for events and moves
from one phase to the next. Deliveries come from the backend's own thread (`backends/base.py`), jobs
run in the slots (`slots.py`), and what happens to a job is decided in `outcome.py`.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, Literal, TypeVar

from queuey_sync.backends.base import Backend, Consumption, Inbox
from queuey_sync.durations import Duration, format_duration
from queuey_sync.errors import BackendError, ConsumerStopped, QueueyError, StopTimedOut, WorkerStuck
from queuey_sync.handlers import Handlers, resolve_policies
from queuey_sync.jobs import Job, check_limits
from queuey_sync.observe.escaping import one_line
from queuey_sync.pools.processes import ProcessPool
from queuey_sync.queues import QueueConfig, QueueSet, check_queue_set
from queuey_sync.retry import RetryPolicy, check_duration
from queuey_sync.shutdown import Shutdown
from queuey_sync.worker.checks import (
    Limits,
    check_concurrency,
    check_delays,
    choose_pool,
    resolve_limits,
    select_queues,
)
from queuey_sync.worker.dead_letters import DeadLetterHook
from queuey_sync.worker.events import (
    ConsumptionEnded,
    Event,
    Listener,
    Overdue,
    RunnerEnded,
    StopRequested,
    Unsettled,
    WatchdogDied,
    WorkerHandle,
)
from queuey_sync.worker.settle import Settler
from queuey_sync.worker.slots import Slots, Work

log = logging.getLogger(__name__)

_STUCK_AFTER = 2.0
"""Seconds that all slots may be overdue: pure Python leaves within them, blocking calls may not."""
_LOOK_AGAIN = 1.0
"""Seconds between two looks for signals: one that comes just as a wait begins does not end it."""


Q = TypeVar("Q", bound=QueueSet)


class Worker(Generic[Q]):
    """Runs the jobs of some queues until it is told to stop.

    Building one checks everything that can be wrong, then declares the queues it will consume.

    Args:
        backend: Where the jobs wait. Other workers and producers may share it.
        queue_set: The set that the queues and the handlers belong to.
        handlers: What runs the jobs. One whose queue is not consumed is legal.
        queues: Which queues of the set to consume; all of them if not given.
        pool: Where handlers run: ``"thread"``, ``"process"``, or a `ProcessPool` with options.
        concurrency: How many jobs run at once; if not given, the sum of the queues' prefetch, and
            of processes at most one for each processor.
        job_timeout: How long a job may run that has no ``timeout`` of its own. A process is killed
            at the limit. A thread cannot be: the attempt is settled as failed, `JobTimedOut` is
            raised in the handler, and the slot takes its next job when the handler has ended.
        soft_timeout: After this time, `SoftTimeout` is raised in the handler.
        stop_deadline: How long a stop may wait for the jobs that run; for ever if not given.
        retry_overrides: Retry policies that replace those declared by queues and jobs, by queue.
        job_retry_overrides: The same by job class; they come before those by queue.
        on_dead_letter: Called with a `DeadLetter` for every job that is given up on, before it is
            settled.
        close_backend_on_shutdown: Whether `run` closes the backend when it ends.

    Raises:
        ConfigurationError: An argument is wrong, a handler cannot run in such a pool, or two
            handlers have one job type (`DuplicateHandler`).
        BackendError: A queue cannot be declared.

    Example:
        >>> from queuey_sync import Handlers, Job, MemoryBackend, Producer, QueueSet, Worker, queue
        >>> class Queues(QueueSet):
        ...     MAIL = queue()
        >>> class Greet(Job[Queues], queue=Queues.MAIL, name="greet"):
        ...     name: str
        >>> handlers = Handlers(Queues)
        >>> @handlers.register
        ... def greet(job: Greet) -> None:
        ...     print("hello", job.name)
        ...     worker.handle().shutdown()
        >>> backend = MemoryBackend()
        >>> job_id = Producer(backend, Queues).enqueue(Greet("ada"))
        >>> worker = Worker(backend, Queues, handlers=handlers)
        >>> worker.run()
        hello ada
    """

    def __init__(
        self,
        backend: Backend,
        queue_set: type[Q],
        *,
        handlers: Handlers[Q],
        queues: Iterable[Q] | None = None,
        pool: Literal["thread", "process"] | ProcessPool = "thread",
        concurrency: int | None = None,
        job_timeout: Duration | None = None,
        soft_timeout: Duration | None = None,
        stop_deadline: Duration | None = None,
        retry_overrides: Mapping[Q, RetryPolicy] | None = None,
        job_retry_overrides: Mapping[type[Job[Q]], RetryPolicy] | None = None,
        on_dead_letter: DeadLetterHook | None = None,
        close_backend_on_shutdown: bool = False,
    ) -> None:
        self._backend = backend
        self._close_backend = close_backend_on_shutdown
        self._handlers = handlers.by_name()
        self._policies = resolve_policies(
            handlers, retry_overrides or {}, job_retry_overrides or {}
        )
        check_delays(self._policies, backend.longest_delay)
        limits = Limits(*check_limits(job_timeout, soft_timeout, hard="job_timeout"))
        self._time_limit = limits.hard
        self._limits = resolve_limits(handlers, limits)
        self._stop_deadline = (
            None if stop_deadline is None else check_duration(stop_deadline, "stop_deadline")
        )
        check_queue_set(queue_set, "queue_set")
        self._configs = select_queues(queue_set, queues)
        self._pool = choose_pool(pool)(handlers)
        prefetch = sum(config.prefetch for config in self._configs)
        self._concurrency = check_concurrency(concurrency, self._pool.default_concurrency(prefetch))
        levels = {member.full_name: member.config.top_level for member in queue_set}
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._settler = Settler(
            levels, on_dead_letter, lambda queue: self._events.put(Unsettled(queue))
        )
        self._handle = WorkerHandle(self._events, self._settler)
        self._ran = threading.Lock()
        """Taken for good by the one call of `run`."""
        self._stopping = Shutdown()
        """Stopped by `run`; what handlers see as ``ctx.stopping``."""
        # The thread in `run` owns the rest.
        self._ended = 0
        """How many runners have ended."""
        self._overdue = 0
        self._stop_requested = False
        self._unsettled = Counter[str]()
        """How many deliveries of each queue are left unsettled; they keep its prefetch slots."""
        self._error: BaseException | None = None
        self._give_up_at = math.inf
        """When a stop has taken too long, on the monotonic clock."""
        backend.declare(self._configs)

    @property
    def queues(self) -> Sequence[QueueConfig]:
        """The queues that are consumed, in order."""
        return self._configs

    @property
    def concurrency(self) -> int:
        """How many jobs run at once."""
        return self._concurrency

    def handle(self) -> WorkerHandle:
        """What stops this worker and tells how it does."""
        return self._handle

    def retry_policy_for(self, job_type: str) -> RetryPolicy | None:
        """The policy that judges a job type, or None when it has no handler here."""
        return self._policies.get(job_type)

    def run(self) -> None:
        """Work until `WorkerHandle.shutdown`, then finish what was taken, settle it, and return.

        Runs on any thread, and once only. Whatever ends it, jobs that run are awaited and settled
        first. With handlers left over their time limit it returns all the same, but Python joins
        their threads when the interpreter exits; a script that must not wait for them ends with
        ``logging.shutdown(); os._exit(0)``.

        Raises:
            ConsumerStopped: The broker, the connection or a queue went away.
            StartError: A child process, or an ``on_start`` function of the app, failed.
            StopTimedOut: The jobs that ran when the stop's deadline came went back.
            WorkerStuck: Every slot is held by a handler over its time limit.
            BackendError: The consumers could not be started, or the backend could not be closed.
            QueueyError: It was run before.
        """
        if not self._ran.acquire(blocking=False):
            raise QueueyError("this worker was run already: a worker runs once, so build a new one")
        try:
            if self._configs:
                self._work()
        finally:
            if self._close_backend:
                self._close()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        self._pool.start()
        inbox: Inbox = SimpleQueue()
        work = Work(
            inbox=inbox,
            pool=self._pool,
            handlers=self._handlers,
            policies=self._policies,
            limits=self._limits,
            settler=self._settler,
            watcher=self._stopping.watcher(),
            longest_delay=self._backend.longest_delay,
        )
        slots = Slots(
            work,
            self._concurrency,
            ended=lambda error: self._events.put(RunnerEnded(error)),
            overdue=lambda change: self._events.put(Overdue(change)),
            watchdog_died=lambda error: self._events.put(WatchdogDied(error)),
        )
        listener = Listener(self._events, self._settler)
        consumption = self._backend.consume(self._configs, inbox, listener)
        try:
            for _ in range(self._concurrency):
                slots.start_one()
            self._log_start()
            while not (self._stop_requested or self._error):
                self._next_event()
        finally:
            self._drain(consumption, slots)

    def _drain(self, consumption: Consumption, slots: Slots) -> None:
        log.info("stopping: waiting for the jobs that run")
        self._stopping.stop()
        runners = slots.stop()
        consumption.stop(runners)
        self._pool.stop()
        if self._stop_deadline is not None:
            self._give_up_at = time.monotonic() + self._stop_deadline.total_seconds()
        while runners - self._ended > self._overdue or (self._all_overdue and not self._error):
            self._next_event()
            if time.monotonic() > self._give_up_at and not self._give_up(slots):
                break
        slots.close()
        consumption.close()
        while not self._events.empty():
            self._next_event()
        log.info("stopped; settle failures: %d", self._settler.failures)

    def _give_up(self, slots: Slots) -> bool:
        """The stop took too long. Returns whether the runners will end now."""
        self._give_up_at = math.inf
        left = slots.running()
        names = ", ".join(f"{job.job_id} ({job.job_type})" for job in left[:10])
        self._fail(
            StopTimedOut(
                f"{len(left)} jobs still ran at the deadline of the stop, and go back to their"
                f" queues: {names}"
            )
        )
        return self._pool.abandon()

    def _close(self) -> None:
        try:
            self._backend.close()
        except Exception as error:
            log.exception("closing the backend failed")
            self._fail(error)

    # Events: made by any thread, taken by the one in `run`.

    @property
    def _all_overdue(self) -> bool:
        return self._overdue == self._concurrency

    def _next_event(self) -> None:
        wait = _STUCK_AFTER if self._all_overdue else _LOOK_AGAIN
        left = max(self._give_up_at - time.monotonic(), 0)
        try:
            event = self._events.get(timeout=min(wait, left))
        except Empty:
            if self._all_overdue and wait <= left:
                self._fail(WorkerStuck(self._concurrency))
        else:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case StopRequested():
                self._stop_requested = True
            case ConsumptionEnded(error):
                if not (self._stop_requested and _ended_in_good_order(error)):
                    self._fail(error)
            case RunnerEnded(error):
                self._ended += 1
                if error is not None:
                    self._fail(error)
            case Unsettled(queue):
                self._count_unsettled(queue)
            case WatchdogDied(error):
                self._fail(error)
            case Overdue(change):
                self._overdue += change

    def _count_unsettled(self, queue: str) -> None:
        """A queue with all its prefetch unsettled delivers no more: never starve in silence."""
        self._unsettled[queue] += 1
        prefetch = {config.full_name: config.prefetch for config in self._configs}
        if self._unsettled[queue] == prefetch[queue]:
            text = f"queue `{queue}` delivers no more: {prefetch[queue]} jobs could not be settled"
            self._fail(BackendError(f"{text}; they run again when the worker is started again"))

    def _fail(self, error: BaseException) -> None:
        """The first error is the one that `run` raises."""
        if self._error is None:
            log.error("the worker ends: %s", one_line(error))
            self._error = error

    def _log_start(self) -> None:
        log.info(
            "working on %s with %d %s%s",
            ", ".join(config.full_name for config in self._configs),
            self._concurrency,
            _plural(self._pool.unit, self._concurrency),
            f", {format_duration(self._time_limit)} a job" if self._time_limit else "",
        )


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}es" if word.endswith("s") else f"{word}s"


def _ended_in_good_order(error: QueueyError) -> bool:
    return isinstance(error, ConsumerStopped) and error.__cause__ is None
