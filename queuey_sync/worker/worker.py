"""The worker: what users build. Everything that can be wrong is found here, before anything runs.

What it does when it runs is in `run.py`: start, work, wind down, stop. What happens to a job is
decided in `outcome.py`, and the options are checked in `checks.py`.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from queue import SimpleQueue
from typing import Generic, Literal, TypeVar

from queuey_sync.backends.base import Backend
from queuey_sync.durations import Duration
from queuey_sync.errors import QueueyError
from queuey_sync.handlers import Handlers, resolve_policies
from queuey_sync.jobs import Job, check_limits
from queuey_sync.observe.status import StatusFile
from queuey_sync.pools.processes import ProcessPool
from queuey_sync.queues import QueueConfig, QueueSet, check_queue_set
from queuey_sync.retry import RetryPolicy, check_duration
from queuey_sync.shutdown import Backoff, Shutdown
from queuey_sync.worker.checks import (
    Limits,
    check_backoff,
    check_concurrency,
    check_delays,
    choose_pool,
    resolve_limits,
    select_queues,
)
from queuey_sync.worker.dead_letters import DeadLetterHook
from queuey_sync.worker.drain import Drain, DrainSummary
from queuey_sync.worker.events import Event, Unsettled, WorkerHandle
from queuey_sync.worker.run import Plan, Run
from queuey_sync.worker.settle import Settler

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
        reconnect: What to wait, after the connection was lost, before each try to connect again,
            while jobs that run go on. Without it, such a loss ends `run`; the first connection is
            never retried.
        report_every: How often what was done is counted up in the log, while anything is done.
        status_file: Where to write once a second how it does, for ``queuey-sync health``.

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
        reconnect: Backoff | None = None,
        report_every: Duration | None = "1m",
        status_file: str | None = None,
    ) -> None:
        policies = resolve_policies(handlers, retry_overrides or {}, job_retry_overrides or {})
        check_delays(policies, backend.longest_delay)
        limits = Limits(*check_limits(job_timeout, soft_timeout, hard="job_timeout"))
        deadline = None if stop_deadline is None else check_duration(stop_deadline, "stop_deadline")
        check_queue_set(queue_set, "queue_set")
        configs = select_queues(queue_set, queues)
        chosen = choose_pool(pool)(handlers)
        prefetch = sum(config.prefetch for config in configs)
        levels = {member.full_name: member.config.top_level for member in queue_set}
        events: SimpleQueue[Event] = SimpleQueue()
        self._plan = Plan(
            backend=backend,
            close_backend=close_backend_on_shutdown,
            configs=configs,
            pool=chosen,
            concurrency=check_concurrency(concurrency, chosen.default_concurrency(prefetch)),
            handlers=handlers.by_name(),
            policies=policies,
            time_limit=limits.hard,
            limits=resolve_limits(handlers, limits),
            stop_deadline=deadline,
            reconnect=check_backoff(reconnect),
            report_every=None
            if report_every is None
            else check_duration(report_every, "report_every"),
            status_file=None if status_file is None else StatusFile(status_file),
            events=events,
            settler=Settler(levels, on_dead_letter, lambda left: events.put(Unsettled(left))),
            stopping=Shutdown(),
        )
        self._handle = WorkerHandle(events, self._plan.settler)
        self._ran = threading.Lock()
        """Taken for good by the one call of `run` or `drain`."""
        backend.declare(configs)

    @property
    def queues(self) -> Sequence[QueueConfig]:
        """The queues that are consumed, in order."""
        return self._plan.configs

    @property
    def concurrency(self) -> int:
        """How many jobs run at once."""
        return self._plan.concurrency

    def handle(self) -> WorkerHandle:
        """What stops this worker and tells how it does."""
        return self._handle

    def retry_policy_for(self, job_type: str) -> RetryPolicy | None:
        """The policy that judges a job type, or None when it has no handler here."""
        return self._plan.policies.get(job_type)

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
        self._run(None)

    def drain(
        self,
        *,
        max_jobs: int | None = None,
        max_time: Duration | None = None,
        wait_held: Duration | None = None,
    ) -> DrainSummary:
        """Work until the queues are empty and nothing is in hand, then stop as `run` does.

        Args:
            max_jobs: Take no more than this many jobs; each attempt is one.
            max_time: Take no more after this time; jobs that run are finished.
            wait_held: Wait for retries and deferrals too, those that come due within this time from
                now. A backend that cannot see them (`Depth.held` is None) waits for those that this
                drain placed itself. Others are left where they are.

        Raises:
            ConfigurationError: A limit is wrong.
            BackendError: The queues could not be looked at.
            QueueyError: Anything else that `run` raises.

        Example:
            >>> from queuey_sync import Job, Queuey, QueueSet, queue
            >>> class Queues(QueueSet):
            ...     MAIL = queue()
            >>> class Greet(Job[Queues], queue=Queues.MAIL, name="greet"):
            ...     name: str
            >>> app = Queuey(Queues, url="memory:")
            >>> @app.handler
            ... def greet(job: Greet) -> None:
            ...     print("hello", job.name)
            >>> job_id = app.enqueue(Greet("ada"))
            >>> summary = app.worker().drain()
            hello ada
            >>> summary.ended_by, summary.total("succeeded"), summary.total("left")
            ('empty', 1, 0)
        """
        drain = Drain(
            self._plan.backend,
            self._plan.configs,
            self._plan.settler.tally,
            max_jobs=max_jobs,
            max_time=max_time,
            wait_held=wait_held,
        )
        self._run(drain)
        return drain.summary

    def _run(self, drain: Drain | None) -> None:
        if not self._ran.acquire(blocking=False):
            raise QueueyError("this worker was run already: a worker runs once, so build a new one")
        Run(self._plan, drain).run()
