"""What the thread in `Worker.run` hears of, and who tells it: one queue of small events.

Putting one takes no lock, so a signal handler may; only `worker.py` takes them. Whoever wants to
stop a worker holds a `WorkerHandle`.
"""

from dataclasses import dataclass
from queue import SimpleQueue

from queuey_sync.backends.base import Delivery, Survey
from queuey_sync.errors import QueueyError
from queuey_sync.worker.settle import Settler
from queuey_sync.worker.tally import Counts, Progress


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A stop was asked for."""


@dataclass(frozen=True, slots=True)
class DumpRequested:
    """Somebody wants to know what the worker is doing."""


@dataclass(frozen=True, slots=True)
class ConsumptionEnded:
    """The backend delivers no more."""

    error: QueueyError


@dataclass(frozen=True, slots=True)
class RunnerEnded:
    """A runner is gone; an error ends the worker."""

    error: BaseException | None


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A delivery stays with this worker for a while, for it could not be settled."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Redelivers:
    """The broker delivers again what was left unsettled of this queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class WatchdogDied:
    """No time limit holds any more."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Overdue:
    """So many more slots are held by a handler over its time limit."""

    change: int


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The backend has looked at the queues, as a drain had asked it to."""

    survey: Survey


Event = (
    StopRequested
    | DumpRequested
    | ConsumptionEnded
    | RunnerEnded
    | Unsettled
    | Redelivers
    | WatchdogDied
    | Overdue
    | Surveyed
)


class WorkerHandle:
    """Stops a worker and tells how it does; valid before, during and after `Worker.run`."""

    def __init__(self, events: "SimpleQueue[Event]", settler: Settler) -> None:
        self._events = events
        self._settler = settler
        self._stopping = False
        """Written by any thread, once, to True; needs no lock."""

    def shutdown(self) -> None:
        """Ask the worker to stop, and return at once.

        Idempotent, and callable from any thread and from a signal handler: it takes no lock.
        """
        self._stopping = True
        self._events.put(StopRequested())

    def dump(self) -> None:
        """Have the stacks of all threads and the jobs that run logged; callable as `shutdown` is.

        Nothing is logged before the worker runs, or after.
        """
        self._events.put(DumpRequested())

    def is_shutdown(self) -> bool:
        """Whether `shutdown` was called."""
        return self._stopping

    def settle_failures(self) -> int:
        """How many jobs ran without the broker hearing of it: each of them will run again.

        Normally exactly zero, and worth an alert when it is not. Final when `Worker.run` has
        returned.
        """
        return self._settler.failures

    def late_results(self) -> int:
        """How many handlers in threads ended after their job's time limit.

        Their jobs were settled as timed out by then, so what they returned or raised was dropped.
        """
        return self._settler.tally.late

    def counts(self, queue: str) -> Counts:
        """What became of the deliveries of one queue so far, by its full name."""
        return self._settler.tally.counts(queue)

    def progress(self) -> Progress:
        """How far `Worker.drain` is."""
        return self._settler.tally.progress()


class Listener:
    """Hears from the backend's threads; see `queuey_sync.backends.base.Listener`."""

    def __init__(self, events: "SimpleQueue[Event]", settler: Settler) -> None:
        self._events = events
        self._settler = settler

    def ended(self, error: QueueyError) -> None:
        """Pass it on."""
        self._events.put(ConsumptionEnded(error))

    def redelivers(self, queue: str) -> None:
        """Pass it on."""
        self._events.put(Redelivers(queue))

    def settle_failed(self, delivery: Delivery, error: Exception) -> None:
        """Count it."""
        self._settler.count_failure("ack", delivery.envelope, error)
