"""Batch mode: when a worker that is to empty its queues has done so, and what it tells then.

Empty means: in one pass over all queues nothing was ready, and nothing was in hand from before the
first answer to after the last. So a job of one queue that enqueues onto another is not missed.
`Drain` belongs to the thread in `Worker.drain`, which asks it at each turn; the rest is plain data.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from queuey_sync.backends.base import Backend, Consumption, Survey
from queuey_sync.durations import Duration
from queuey_sync.queues import QueueConfig
from queuey_sync.retry import check_duration, check_integer
from queuey_sync.worker.tally import Counts, Tally

EndedBy = Literal["empty", "max-jobs", "max-time", "signal"]
"""What ended a drain: the queues were empty, a limit was reached, or it was told to stop."""

Total = Literal["succeeded", "retried", "deferred", "dead", "left"]
"""What can be summed up over all queues."""

_PAUSE = 0.1
"""Seconds between two looks at the queues while nothing runs here."""
_PAUSE_AT_WORK = 1.0
"""The same while something does: it cannot be over then, but the progress shows."""
_ARRIVAL = 0.5
"""Seconds that a broker may take to put a job that is due back on its queue."""


@dataclass(frozen=True, slots=True)
class QueueSummary(Counts):
    """What a drain did with one queue, and what it left there."""

    left: int = 0
    """Jobs that are ready now."""
    held: int | None = 0
    """Retries, delays and deferrals that are not due yet; None where nobody can count them."""


@dataclass(frozen=True, slots=True)
class DrainSummary:
    """What a drain did.

    >>> DrainSummary("empty", 0.5, {"shop.mail": QueueSummary(succeeded=3)}).total("succeeded")
    3
    """

    ended_by: EndedBy
    seconds: float
    """How long it took."""
    queues: Mapping[str, QueueSummary]
    """By full name, in the order of consumption."""

    def total(self, what: Total) -> int:
        """The sum over all queues."""
        counts: list[int] = [getattr(queue, what) for queue in self.queues.values()]
        return sum(counts)


class Drain:
    """The limits of one drain, and whether it is over.

    Args:
        backend: Where the jobs wait.
        configs: The queues to empty.
        tally: Counts what is finished.
        max_jobs: How many jobs may be run.
        max_time: When to take no more.
        wait_held: How long, from the beginning, to wait for retries and deferrals.

    Raises:
        ConfigurationError: A limit is wrong.
    """

    def __init__(
        self,
        backend: Backend,
        configs: Sequence[QueueConfig],
        tally: Tally,
        *,
        max_jobs: int | None,
        max_time: Duration | None,
        wait_held: Duration | None,
    ) -> None:
        if max_jobs is not None:
            check_integer(max_jobs, "max_jobs", 1, 2**63 - 1)
        self._backend = backend
        self._configs = configs
        self._tally = tally
        self._began = time.monotonic()
        self._end = self._began + _seconds(max_time, "max_time", math.inf)
        self._held_end = self._began + _seconds(wait_held, "wait_held", -math.inf)
        self._finished_before: int | None = None
        """What was finished when the survey was asked for that is under way, if one is."""
        self._due: float | None = None
        """When the next held job would be there, as it was known before that survey."""
        self._look_at = self._began
        """When to look at the queues next."""
        self._looked_at = -math.inf
        self.permits: Iterator[object] = (
            itertools.repeat(None) if max_jobs is None else itertools.repeat(None, max_jobs)
        )
        """One for each job that may be taken."""
        self.summary = DrainSummary("empty", 0.0, {})
        """Complete when `finish` was called."""

    def seconds_left(self) -> float:
        """How long nothing needs to be asked."""
        wanted = self._end if self._finished_before is not None else min(self._end, self._look_at)
        return max(wanted - time.monotonic(), 0)

    def turn(
        self, consumption: Consumption, answer: Callable[[Survey], None], *, busy: bool
    ) -> bool:
        """Look at the queues, if it is time for it; returns whether the time is up."""
        now = time.monotonic()
        if now >= self._end:
            return True
        if self._finished_before is None and now >= self._look_at:
            if busy and now < self._looked_at + _PAUSE_AT_WORK:
                self._look_at = now + _PAUSE
            else:
                self._looked_at = now
                self._finished_before = self._tally.finished
                # In this order: what is held no longer when the survey is made, it sees.
                self._due = self._next_due(now) if now < self._held_end else None
                consumption.survey(answer)
        return False

    def is_done(self, survey: Survey) -> bool:
        """Whether this answer says that nothing is left to do."""
        now = time.monotonic()
        before, self._finished_before = self._finished_before, None
        self._look_at = now + _PAUSE
        self._tally.expect(survey.delivered + sum(survey.ready.values()))
        if any(survey.ready.values()) or survey.delivered != before:
            return False
        if self._due is None or max(self._due, now) > self._held_end:
            return True
        self._look_at = max(self._look_at, self._due)
        return False

    def _next_due(self, now: float) -> float | None:
        """When the next held job may be there, on the monotonic clock; None for never."""
        depths = self._backend.depths(self._configs)
        if any(depth.held is None for depth in depths):
            # What others hold is unknown; what was held here is rounded up, and takes its way.
            late = self._backend.delay_step.total_seconds() + _ARRIVAL
            due = self._tally.next_due(now - late)
            return None if due is None else due + late
        dues = [_monotonic(depth.next_due, now) for depth in depths if depth.held]
        return min(dues, default=None)

    def finish(self, ended_by: EndedBy) -> None:
        """Write the summary: what was done, and what is left on the queues."""
        names = [config.full_name for config in self._configs]
        depths = self._backend.depths(self._configs) if self._configs else []
        queues = {
            name: QueueSummary(
                **asdict(self._tally.counts(name)), left=depth.ready, held=depth.held
            )
            for name, depth in zip(names, depths, strict=True)
        }
        self.summary = DrainSummary(ended_by, time.monotonic() - self._began, queues)


def _seconds(limit: Duration | None, name: str, default: float) -> float:
    return default if limit is None else check_duration(limit, name, zero=True).total_seconds()


def _monotonic(due: datetime | None, now: float) -> float:
    """A due time on the monotonic clock; `now`, to look again soon, where it is unknown."""
    return now if due is None else now + (due - datetime.now(UTC)) / timedelta(seconds=1)
