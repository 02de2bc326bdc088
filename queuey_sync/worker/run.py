"""One run of a worker: start, work, wind down, stop, in that order, in `Run.run`.

The thread that calls it runs no user code: it waits for events and moves from one phase to the
next. Deliveries come from the backend's own thread (`backends/base.py`), jobs run in the slots
(`slots.py`), and `drain.py` says when a batch is done.
"""

import itertools
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue

from queuey_sync.backends.base import Backend, Consumption, Delivery, Inbox, Pulse, Survey
from queuey_sync.durations import format_duration
from queuey_sync.errors import BackendError, ConsumerStopped, QueueyError, StopTimedOut, WorkerStuck
from queuey_sync.handlers import Handler
from queuey_sync.observe.escaping import one_line
from queuey_sync.observe.notify import notify
from queuey_sync.observe.stacks import thread_stacks
from queuey_sync.observe.status import RunningJob, State, Status, StatusFile
from queuey_sync.pools.base import Pool
from queuey_sync.queues import QueueConfig
from queuey_sync.retry import RetryPolicy
from queuey_sync.shutdown import Backoff, Shutdown
from queuey_sync.worker.checks import Limits
from queuey_sync.worker.drain import Drain, EndedBy
from queuey_sync.worker.events import (
    ConsumptionEnded,
    DumpRequested,
    Event,
    Listener,
    Overdue,
    Redelivers,
    RunnerEnded,
    StopRequested,
    Surveyed,
    Unsettled,
    WatchdogDied,
)
from queuey_sync.worker.settle import Settler
from queuey_sync.worker.slots import Slots, Work
from queuey_sync.worker.tally import Reports

log = logging.getLogger(__name__)

_STUCK_AFTER = 2.0
"""Seconds that all slots may be overdue: pure Python leaves within them, blocking calls may not."""
_GIVE_BACK_AFTER = 15.0
"""Seconds from a settle that failed until the job is given back: what hindered it may be over."""
_LOOK_AGAIN = 1.0
"""Seconds between two looks for signals: one that comes just as a wait begins does not end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a worker was built with, checked; nothing in here changes."""

    backend: Backend
    close_backend: bool
    configs: Sequence[QueueConfig]
    """The queues to consume."""
    pool: Pool
    concurrency: int
    handlers: Mapping[str, Handler]
    policies: Mapping[str, RetryPolicy]
    time_limit: timedelta | None
    """For jobs that have none of their own."""
    limits: Mapping[str, Limits]
    stop_deadline: timedelta | None
    reconnect: Backoff | None
    report_every: timedelta | None
    status_file: StatusFile | None
    events: SimpleQueue[Event]
    settler: Settler
    stopping: Shutdown
    """Stopped by the run; what handlers see as ``ctx.stopping``."""


class Run:
    """One run. Owner: the thread that calls `run`.

    Args:
        plan: What to do it with.
        drain: Says when to stop, if it is not for a signal alone.
    """

    def __init__(self, plan: Plan, drain: Drain | None) -> None:
        self._plan = plan
        self._drain = drain
        self._inbox: Inbox = SimpleQueue()
        self._slots = Slots(
            Work(
                inbox=self._inbox,
                pool=plan.pool,
                handlers=plan.handlers,
                policies=plan.policies,
                limits=plan.limits,
                settler=plan.settler,
                watcher=plan.stopping.watcher(),
                longest_delay=plan.backend.longest_delay,
                permits=itertools.repeat(None) if drain is None else drain.permits,
            ),
            plan.concurrency,
            ended=lambda error: plan.events.put(RunnerEnded(error)),
            overdue=self._note_overdue,
            watchdog_died=lambda error: plan.events.put(WatchdogDied(error)),
        )
        self._reports = Reports(plan.settler.tally, plan.report_every)
        self._ready = False
        """Whether systemd was told that it works."""
        self._state: State | None = None
        """What the status file said last."""
        self._write_at = 0.0
        self._status_lost = False
        """Whether it could not be written the last time."""
        self._ended = 0
        """How many runners have ended."""
        self._overdue = 0
        self._left: list[tuple[float, Delivery]] = []
        """Deliveries left unsettled, which keep their prefetch slots, and when to give each back on
        the monotonic clock; in that order."""
        self._ended_by: EndedBy | None = None
        """What ended the work in good order."""
        self._error: BaseException | None = None
        self._give_up_at = math.inf
        """When a stop has taken too long, on the monotonic clock."""
        self._stuck_at = math.inf
        """When all slots have been overdue for too long."""

    def run(self) -> None:
        """Work until something ends it; see `Worker.run` for what it raises."""
        try:
            if self._plan.configs:
                self._work()
            if self._drain is not None and self._error is None:
                self._drain.finish(self._ended_by or "empty")
        finally:
            if self._plan.close_backend:
                self._close()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        plan = self._plan
        self._write_status("starting")
        plan.pool.start()
        listener = Listener(plan.events, plan.settler)
        consumption = plan.backend.consume(plan.configs, self._inbox, listener, plan.reconnect)
        try:
            for _ in range(plan.concurrency):
                self._slots.start_one()
            self._log_start()
            while not (self._ended_by or self._error):
                self._tell_ready(consumption)
                self._write_status("working", consumption)
                self._next_event(self._time_for_a_drain(consumption))
        finally:
            notify("STOPPING=1")
            self._wind_down(consumption)
            self._write_status("stopped")

    def _time_for_a_drain(self, consumption: Consumption) -> float:
        """Do what a drain needs now; returns how many seconds it needs nothing."""
        if self._drain is None:
            return math.inf

        def answer(survey: Survey) -> None:
            self._plan.events.put(Surveyed(survey))

        if self._drain.turn(consumption, answer, busy=bool(self._slots.running())):
            self._end("max-time")
        return self._drain.seconds_left()

    def _wind_down(self, consumption: Consumption) -> None:
        log.info("stopping: waiting for the jobs that run")
        self._plan.stopping.stop()
        runners = self._slots.stop()
        consumption.stop(runners)
        self._plan.pool.stop()
        if self._plan.stop_deadline is not None:
            self._give_up_at = time.monotonic() + self._plan.stop_deadline.total_seconds()
        while runners - self._ended > self._overdue or (self._all_overdue and not self._error):
            self._write_status("stopping")
            self._next_event()
            if time.monotonic() > self._give_up_at and not self._give_up():
                break
        self._slots.close()
        consumption.close()
        while not self._plan.events.empty():
            self._next_event()
        log.info("stopped; settle failures: %d", self._plan.settler.failures)

    def _give_up(self) -> bool:
        """The stop took too long. Returns whether the runners will end now."""
        self._give_up_at = math.inf
        left = [job for job, _ in self._slots.running()]
        names = ", ".join(f"{job.job_id} ({job.job_type})" for job in left[:10])
        self._fail(
            StopTimedOut(
                f"{len(left)} jobs still ran at the deadline of the stop, and go back to their"
                f" queues: {names}"
            )
        )
        return self._plan.pool.abandon()

    def _close(self) -> None:
        try:
            self._plan.backend.close()
        except Exception as error:
            log.exception("closing the backend failed")
            self._fail(error)

    # Events: made by any thread, taken by the one in `run`.

    @property
    def _all_overdue(self) -> bool:
        return self._overdue == self._plan.concurrency

    def _next_event(self, timeout: float = math.inf) -> None:
        give_back_at = self._left[0][0] if self._left else math.inf
        until = min(self._give_up_at, self._stuck_at, give_back_at) - time.monotonic()
        try:
            event = self._plan.events.get(timeout=max(min(timeout, until, _LOOK_AGAIN), 0))
        except Empty:
            if time.monotonic() >= self._stuck_at:
                self._stuck_at = math.inf
                self._fail(WorkerStuck(self._plan.concurrency))
        else:
            self._take(event)
        self._give_back()
        if (report := self._reports.line()) is not None:
            busy, failures = len(self._slots.running()), self._plan.settler.failures
            log.info("%s; running jobs: %d; settle failures: %d", report, busy, failures)

    def _take(self, event: Event) -> None:
        match event:
            case StopRequested():
                self._end("signal")
            case DumpRequested():
                self._dump()
            case ConsumptionEnded(error):
                self._take_end(error)
            case RunnerEnded(error):
                self._count_ended(error)
            case Unsettled(delivery):
                self._leave(delivery)
            case Redelivers(queue):
                self._left = [left for left in self._left if left[1].queue != queue]
            case WatchdogDied(error):
                self._fail(error)
            case Overdue(change):
                self._overdue += change
                self._stuck_at = time.monotonic() + _STUCK_AFTER if self._all_overdue else math.inf
            case Surveyed(survey):
                self._take_survey(survey)

    def _note_overdue(self, change: int) -> None:
        """Called by the threads that find it out."""
        if change < 0:
            self._plan.settler.tally.drop_late()
        self._plan.events.put(Overdue(change))

    def _take_end(self, error: QueueyError) -> None:
        if not (self._ended_by and _ended_in_good_order(error)):
            self._fail(error)

    def _take_survey(self, survey: Survey) -> None:
        if self._drain is not None and self._drain.is_done(survey):
            self._end("empty")

    def _count_ended(self, error: BaseException | None) -> None:
        self._ended += 1
        if error is not None:
            self._fail(error)
        elif self._ended == self._plan.concurrency:  # a drain has no more permits
            self._end("max-jobs")

    def _leave(self, delivery: Delivery) -> None:
        """Keep what could not be settled for a while: given back at once, it would come at once.

        A queue with all its prefetch unsettled delivers no more: never starve in silence.
        """
        self._left.append((time.monotonic() + _GIVE_BACK_AFTER, delivery))
        queue = delivery.queue
        prefetch = {config.full_name: config.prefetch for config in self._plan.configs}
        if sum(left.queue == queue for _, left in self._left) == prefetch[queue]:
            text = f"queue `{queue}` delivers no more: {prefetch[queue]} jobs could not be settled"
            self._fail(BackendError(f"{text}; they run again when the worker is started again"))

    def _give_back(self) -> None:
        while self._left and self._left[0][0] <= time.monotonic():
            _, delivery = self._left.pop(0)
            with suppress(QueueyError):  # its connection is gone, and so it is back already
                delivery.release()

    def _end(self, why: EndedBy) -> None:
        self._ended_by = self._ended_by or why

    def _fail(self, error: BaseException) -> None:
        """The first error is the one that `run` raises."""
        if self._error is None:
            log.error("the worker ends: %s", one_line(error))
            self._error = error

    def _tell_ready(self, consumption: Consumption) -> None:
        if not self._ready and consumption.pulse().consuming:
            self._ready = True
            notify("READY=1")

    def _write_status(self, state: State, consumption: Consumption | None = None) -> None:
        """At most once a second, but for a change of the state."""
        file, now = self._plan.status_file, time.monotonic()
        if file is None or (state == self._state and now < self._write_at):
            return
        self._state, self._write_at = state, now + _LOOK_AGAIN
        pulse = Pulse(now, consuming=True) if consumption is None else consumption.pulse()
        settler = self._plan.settler
        status = Status(
            pid=os.getpid(),
            state=state if pulse.consuming else "connecting",
            written=now,
            turned=pulse.turned,
            concurrency=self._plan.concurrency,
            overdue=self._overdue,
            jobs=[
                RunningJob(str(job.job_id), job.job_type, job.queue, job.attempt, began)
                for job, began in self._slots.running()
            ],
            counts={
                config.full_name: asdict(settler.tally.counts(config.full_name))
                for config in self._plan.configs
            },
            settle_failures=settler.failures,
            error=None if self._error is None else one_line(self._error),
        )
        try:
            file.write(status)
        except OSError as error:
            if not self._status_lost:
                log.error("the status file cannot be written: %s", one_line(error))
            self._status_lost = True
        else:
            self._status_lost = False

    def _dump(self) -> None:
        jobs = [
            f"job {job.job_id} ({one_line(job.job_type)}) on {one_line(job.queue)},"
            f" attempt {job.attempt}"
            for job, _ in self._slots.running()
        ]
        lines = [f"{len(jobs)} of {self._plan.concurrency} slots have a job", *jobs]
        log.warning("%s\n%s", "\n".join(lines), thread_stacks())

    def _log_start(self) -> None:
        plan = self._plan
        log.info(
            "working on %s with %d %s%s",
            ", ".join(config.full_name for config in plan.configs),
            plan.concurrency,
            _plural(plan.pool.unit, plan.concurrency),
            f", {format_duration(plan.time_limit)} a job" if plan.time_limit else "",
        )
        longest = plan.backend.settle_limit
        limits = {name: limit.hard for name, limit in plan.limits.items()}
        late = [name for name, hard in limits.items() if longest and hard and hard > longest]
        if longest and late:
            log.warning(
                "the time limit of %s is longer than the %s after which the broker takes a job away"
                " and runs it again: raise its consumer_timeout, if that was not done",
                ", ".join(late),
                format_duration(longest),
            )


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}es" if word.endswith("s") else f"{word}s"


def _ended_in_good_order(error: QueueyError) -> bool:
    return isinstance(error, ConsumerStopped) and error.__cause__ is None
