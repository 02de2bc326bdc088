"""The worker: start, work, drain, stop, in that order, in `Worker.run`.

The thread that calls `run` does no broker I/O and runs no user code: it waits for events and moves
from one phase to the next. Deliveries come from the backend's own thread (`backends/base.py`), jobs
run in the slots (`slots.py`), and what happens to a job is decided in `outcome.py`.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from queuey_sync.backends.base import Backend, Consumption, Delivery, Inbox
from queuey_sync.durations import Duration, format_duration
from queuey_sync.errors import (
    BackendError,
    ConfigurationError,
    ConsumerStopped,
    QueueyError,
    WorkerStuck,
)
from queuey_sync.handlers import Handlers, resolve_policies
from queuey_sync.jobs import Job
from queuey_sync.pools.threads import ThreadPool
from queuey_sync.queues import QueueConfig, QueueSet
from queuey_sync.retry import RetryPolicy, check_duration, check_integer
from queuey_sync.shutdown import Shutdown
from queuey_sync.worker.dead_letters import DeadLetterHook
from queuey_sync.worker.settle import Settler
from queuey_sync.worker.slots import Slots, Work

log = logging.getLogger(__name__)

_STUCK_AFTER = 2.0
"""Seconds that all slots may be overdue: pure Python leaves within them, blocking calls may not."""
_LOOK_AGAIN = 1.0
"""Seconds between two looks for signals: one that comes just as a wait begins does not end it."""


@dataclass(frozen=True, slots=True)
class _StopRequested:
    pass


@dataclass(frozen=True, slots=True)
class _ConsumptionEnded:
    error: QueueyError


@dataclass(frozen=True, slots=True)
class _RunnerEnded:
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class _Unsettled:
    queue: str


@dataclass(frozen=True, slots=True)
class _WatchdogDied:
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Overdue:
    change: int


Q = TypeVar("Q", bound=QueueSet)

_Event = _StopRequested | _ConsumptionEnded | _RunnerEnded | _Unsettled | _WatchdogDied | _Overdue


class WorkerHandle:
    """Stops a worker and tells how it does; valid before, during and after `Worker.run`."""

    def __init__(self, events: "SimpleQueue[_Event]", settler: Settler) -> None:
        self._events = events
        self._settler = settler
        self._stopping = False
        """Written by any thread, once, to True; needs no lock."""

    def shutdown(self) -> None:
        """Ask the worker to stop, and return at once.

        Idempotent, and callable from any thread and from a signal handler: it takes no lock.
        """
        self._stopping = True
        self._events.put(_StopRequested())

    def is_shutdown(self) -> bool:
        """Whether `shutdown` was called."""
        return self._stopping

    def settle_failures(self) -> int:
        """How many jobs ran without the broker hearing of it: each of them will run again.

        Normally exactly zero, and worth an alert when it is not. Final when `Worker.run` has
        returned.
        """
        return self._settler.failures


class Worker(Generic[Q]):
    """Runs the jobs of some queues until it is told to stop.

    Building one checks everything that can be wrong, then declares the queues it will consume.

    Args:
        backend: Where the jobs wait. Other workers and producers may share it.
        queue_set: The set that the queues and the handlers belong to.
        handlers: What runs the jobs. One whose queue is not consumed is legal.
        queues: Which queues of the set to consume; all of them if not given.
        concurrency: How many jobs run at once; the sum of the queues' prefetch if not given.
        job_timeout: How long a job may run. Threads cannot be killed: at the limit the attempt is
            settled as failed, `JobTimedOut` is raised in the handler, and the slot takes its next
            job when the handler has ended.
        retry_overrides: Retry policies that replace those declared by queues and jobs, by queue.
        job_retry_overrides: The same by job class; they come before those by queue. on_dead_letter:
        Called with a `DeadLetter` for every job that is given up on, before it is settled.
        close_backend_on_shutdown: Whether `run` closes the backend when it ends.

    Raises:
        ConfigurationError: An argument is wrong, or two handlers have one job type
        (`DuplicateHandler`). BackendError: A queue cannot be declared.

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
        concurrency: int | None = None,
        job_timeout: Duration | None = None,
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
        _check_delays(self._policies, backend.longest_delay)
        self._configs = _selected(queue_set, queues)
        self._concurrency = _concurrency(concurrency, self._configs)
        self._time_limit = (
            None if job_timeout is None else check_duration(job_timeout, "job_timeout")
        )
        levels = {member.full_name: member.config.top_level for member in queue_set}
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._settler = Settler(
            levels, on_dead_letter, lambda queue: self._events.put(_Unsettled(queue))
        )
        self._handle = WorkerHandle(self._events, self._settler)
        self._ran = threading.Lock()
        """Taken for good by the one call of `run`."""
        self._stopping = Shutdown()
        """Stopped by `run`; what handlers see as ``ctx.stopping``."""
        # The thread in `run` owns the rest.
        self._runners = 0
        self._overdue = 0
        self._stop_requested = False
        self._unsettled = Counter[str]()
        """How many deliveries of each queue are left unsettled; they keep its prefetch slots."""
        self._error: BaseException | None = None
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
        inbox: Inbox = SimpleQueue()
        work = Work(
            inbox=inbox,
            pool=ThreadPool(),
            handlers=self._handlers,
            policies=self._policies,
            settler=self._settler,
            watcher=self._stopping.watcher(),
            time_limit=self._time_limit,
            longest_delay=self._backend.longest_delay,
        )
        slots = Slots(
            work,
            self._concurrency,
            ended=lambda error: self._events.put(_RunnerEnded(error)),
            overdue=lambda change: self._events.put(_Overdue(change)),
            watchdog_died=lambda error: self._events.put(_WatchdogDied(error)),
        )
        listener = _Listener(self._events, self._settler)
        consumption = self._backend.consume(self._configs, inbox, listener)
        try:
            for _ in range(self._concurrency):
                slots.start_one()
                self._runners += 1
            self._log_start()
            while not (self._stop_requested or self._error):
                self._next_event()
        finally:
            self._drain(consumption, slots)

    def _drain(self, consumption: Consumption, slots: Slots) -> None:
        log.info("stopping: waiting for the jobs that run")
        self._stopping.stop()
        consumption.stop(self._runners)
        while self._runners > self._overdue or (self._all_overdue and not self._error):
            self._next_event()
        slots.close()
        consumption.close()
        while not self._events.empty():
            self._next_event()
        log.info("stopped; settle failures: %d", self._settler.failures)

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
        try:
            event = self._events.get(timeout=_STUCK_AFTER if self._all_overdue else _LOOK_AGAIN)
        except Empty:
            if self._all_overdue:
                self._fail(WorkerStuck(self._concurrency))
        else:
            self._take(event)

    def _take(self, event: _Event) -> None:
        match event:
            case _StopRequested():
                self._stop_requested = True
            case _ConsumptionEnded(error):
                if not (self._stop_requested and _ended_in_good_order(error)):
                    self._fail(error)
            case _RunnerEnded(error):
                self._runners -= 1
                if error is not None:
                    self._fail(error)
            case _Unsettled(queue):
                self._count_unsettled(queue)
            case _WatchdogDied(error):
                self._fail(error)
            case _Overdue(change):
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
            log.error("the worker ends: %s", error)
            self._error = error

    def _log_start(self) -> None:
        log.info(
            "working on %s with %d threads%s",
            ", ".join(config.full_name for config in self._configs),
            self._concurrency,
            f", {format_duration(self._time_limit)} a job" if self._time_limit else "",
        )


class _Listener:
    """Hears from the backend's threads; see `queuey_sync.backends.base.Listener`."""

    def __init__(self, events: "SimpleQueue[_Event]", settler: Settler) -> None:
        self._events = events
        self._settler = settler

    def ended(self, error: QueueyError) -> None:
        self._events.put(_ConsumptionEnded(error))

    def settle_failed(self, delivery: Delivery, error: Exception) -> None:
        self._settler.count_failure("ack", delivery.envelope, error)


def _ended_in_good_order(error: QueueyError) -> bool:
    return isinstance(error, ConsumerStopped) and error.__cause__ is None


def _check_delays(policies: Mapping[str, RetryPolicy], longest: timedelta | None) -> None:
    for job_type, policy in policies.items():
        if longest is not None and policy.max_attempts > 1 and policy.max > longest:
            wait, limit = format_duration(policy.max), format_duration(longest)
            raise ConfigurationError(
                f"job `{job_type}`: its retry policy waits up to {wait}, longer than the {limit}"
                " that the backend can hold"
            )


def _selected(queue_set: type[Q], queues: Iterable[Q] | None) -> list[QueueConfig]:
    members = list(queue_set if queues is None else queues)
    for member in members:
        if not isinstance(member, queue_set):
            raise ConfigurationError(f"queues: {member!r} is no member of {queue_set.__name__}")
    return [member.config for member in dict.fromkeys(members)]


def _concurrency(wanted: int | None, configs: Iterable[QueueConfig]) -> int:
    if wanted is None:
        return max(1, sum(config.prefetch for config in configs))
    check_integer(wanted, "concurrency", 0, 10_000)
    return max(1, wanted)
