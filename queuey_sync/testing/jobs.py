"""The jobs of one app, kept in memory: what was enqueued, what is dead, and a way to run the rest.

How they run is in `queuey_sync.worker.inline`; how the app gets to this memory is `Queuey.using`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

from queuey_sync.app import Queuey
from queuey_sync.backends.memory.backend import MemoryBackend
from queuey_sync.backends.memory.clock import ManualClock
from queuey_sync.durations import Duration
from queuey_sync.envelope import Envelope
from queuey_sync.errors import ConfigurationError
from queuey_sync.jobs import Job, job_type_of
from queuey_sync.worker.dead_letters import DeadLetter
from queuey_sync.worker.inline import MOST_RUNS, InlineWorker

J = TypeVar("J", bound=Job[Any])


class MemoryJobs:
    """The jobs of an app, as a test sees them; `use_memory` makes one.

    Attributes:
        clock: The time of this memory, which stands still but in `run` and `ManualClock.advance`.
        backend: Where the jobs wait, for all that is not offered here.
    """

    def __init__(self, app: Queuey[Any]) -> None:
        self.clock = ManualClock()
        self.backend: MemoryBackend = _Recorder(self)
        self._envelopes: list[Envelope] = []
        self._dead: list[DeadLetter] = []
        """Like the envelopes appended to by any thread, which needs no lock."""
        self._worker = InlineWorker(app.queues, app.handlers, self._dead.append)

    def enqueued(self, job: type[J]) -> list[J]:
        """Every job of this class that was enqueued since the start, in order, run or not.

        Another attempt of a job is the same job, and one that was deferred too.
        """
        job_type = job_type_of(job)
        found = [one.payload for one in self._envelopes if one.job_type == job_type.name]
        return [cast("J", job_type.decode(payload)) for payload in found]

    def dead(self) -> list[DeadLetter]:
        """Every job that `run` gave up on, in order."""
        return list(self._dead)

    def run(
        self,
        *,
        within: Duration | None = None,
        limit: int = MOST_RUNS,
        raise_errors: bool = False,
    ) -> int:
        """Run what waits, in this thread, until nothing does; waits are jumped over.

        Each job runs as in a worker: decoded, inside what ``app.around`` registered, judged by its
        retry policy, and settled. Time limits are not kept.

        Args:
            within: Jump no further than this from now; the clock is there when it returns.
            limit: How many runs are too many.
            raise_errors: Let what a handler raises, unless it is a `JobError`, leave this call.

        Returns:
            How many runs there were; each attempt is one.

        Raises:
            StartError: What ``app.on_start`` registered failed; it is called once.
            QueueyError: There are more runs than `limit`: a job comes back for ever.
        """
        return self._worker.run(
            self.backend, self.clock, within=within, limit=limit, raise_errors=raise_errors
        )

    def record(self, envelope: Envelope) -> None:
        """Take note of what was enqueued."""
        self._envelopes.append(envelope)


class _Recorder(MemoryBackend):
    """Tells what is enqueued, and whose it is."""

    def __init__(self, jobs: MemoryJobs) -> None:
        super().__init__(jobs.clock)
        self.jobs = jobs

    def publish(self, envelope: Envelope, delay: timedelta | None = None) -> None:
        super().publish(envelope, delay)
        self.jobs.record(envelope)

    def defer(self, envelope: Envelope, delay: timedelta) -> None:
        super().defer(envelope, delay)
        self.jobs.record(envelope)


@contextmanager
def use_memory(app: Queuey[Any]) -> Iterator[MemoryJobs]:
    """Keep the jobs of an app in memory for a ``with`` block, whatever URL it has.

    Everything that goes through the app is meant: its own methods, also where somebody holds on to
    one, and the producers and workers that it makes inside the block. No broker is dialled.

    >>> from queuey_sync import Job, Queuey, QueueSet, queue
    >>> class Queues(QueueSet):
    ...     MAIL = queue()
    >>> class Greet(Job[Queues], queue=Queues.MAIL, name="greet"):
    ...     name: str
    >>> app = Queuey(Queues, url="amqp://localhost")
    >>> @app.handler
    ... def greet(job: Greet) -> None:
    ...     print("hello", job.name)
    >>> with use_memory(app) as jobs:
    ...     job_id = app.enqueue(Greet("ada"))
    ...     runs = jobs.run()
    hello ada
    >>> jobs.enqueued(Greet), runs, jobs.dead()
    ([Greet(name='ada')], 1, [])
    """
    jobs = MemoryJobs(app)
    with app.using(jobs.backend):
        try:
            yield jobs
        finally:
            jobs.backend.close()


def run_pending(
    app: Queuey[Any],
    *,
    within: Duration | None = None,
    limit: int = MOST_RUNS,
    raise_errors: bool = False,
) -> int:
    """Run what waits on an app whose jobs are in memory now; see `MemoryJobs.run`.

    Raises:
        ConfigurationError: They are not: `use_memory` comes first.
    """
    backend = app.backend()
    if not isinstance(backend, _Recorder):
        raise ConfigurationError(
            "run_pending: this app has its own backend, where a worker runs the jobs; put it in"
            " memory first, with use_memory(app) or the fixture queuey_memory(app)"
        )
    return backend.jobs.run(within=within, limit=limit, raise_errors=raise_errors)
