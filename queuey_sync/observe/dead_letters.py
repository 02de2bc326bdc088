"""The dead letters of a queue, for people: find them, give them another chance, throw them away.

It knows no kind of backend: what lies there and how it is taken away is `DeadQueue`, in
`backends/base.py`. The command is ``queuey-sync dead``.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from queuey_sync.backends.base import Backend, DeadBody, DeadQueue
from queuey_sync.envelope import Envelope
from queuey_sync.errors import ConfigurationError, MalformedEnvelope
from queuey_sync.queues import QueueConfig

_TOGETHER = 100
"""How many are requeued or dropped at a time."""


@dataclass(frozen=True, slots=True)
class DeadJob:
    """A dead letter as it was found, decoded as far as it can be.

    Attributes:
        found: What the backend keeps: body, reason, headers.
        envelope: Who the job is; None for a body that is no envelope.
    """

    found: DeadBody
    envelope: Envelope | None

    @property
    def reason(self) -> str:
        """Why it was given up on."""
        return self.found.reason

    @property
    def died_at(self) -> datetime | None:
        """When, with a time zone; None where nobody wrote it down."""
        return self.found.died_at

    @property
    def age(self) -> timedelta | None:
        """How long ago it was given up on; or was enqueued, where only that is known."""
        since = self.died_at
        if since is None and self.envelope is not None:
            since = datetime.fromtimestamp(self.envelope.enqueued_at_ms / 1_000, UTC)
        return None if since is None else datetime.now(UTC) - since


Match = Callable[[DeadJob], bool]
"""Says which dead letters are meant."""


class DeadLetters:
    """The dead letters of one queue; `Queuey.dead_letters` makes one.

    Each call opens them anew, and sees what is there when it begins. On RabbitMQ nobody else sees
    what a call has read until it ends.

    Args:
        backend: Where they are.
        config: Whose they are.

    >>> from queuey_sync import Fatal, Job, Queuey, QueueSet, queue
    >>> from queuey_sync.testing import use_memory
    >>> class Queues(QueueSet):
    ...     MAIL = queue()
    >>> class Greet(Job[Queues], queue=Queues.MAIL, name="greet"):
    ...     name: str
    >>> app = Queuey(Queues)
    >>> @app.handler
    ... def greet(job: Greet) -> None:
    ...     raise Fatal("nobody is there")
    >>> with use_memory(app) as jobs:
    ...     job_id = app.enqueue(Greet("ada"))
    ...     runs = jobs.run()
    ...     dead = app.dead_letters(Queues.MAIL)
    ...     [one.reason for one in dead.find()]
    ...     dead.requeue(lambda one: "nobody" in one.reason)
    ['fatal error: nobody is there']
    1
    """

    def __init__(self, backend: Backend, config: QueueConfig) -> None:
        self._backend = backend
        self._config = config

    def count(self) -> int:
        """How many there are."""
        (depth,) = self._backend.depths([self._config])
        return depth.dead

    def find(self, match: Match | None = None, limit: int | None = None) -> Iterator[DeadJob]:
        """Those that match, the oldest first; nothing is changed.

        Args:
            match: Which ones; all by default.
            limit: How many at most.

        Raises:
            BackendError: The queue does not exist, or has no dead letters.
            BrokerUnavailable: The backend cannot be reached.
        """
        with closing(self._backend.open_dead(self._config)) as dead:
            yield from _matching(dead, match, limit)

    def requeue(
        self,
        match: Match | None = None,
        *,
        limit: int | None = None,
        rate: float | None = None,
        payload: bytes | None = None,
        each: Callable[[int], object] | None = None,
    ) -> int:
        """Put those that match back on their queues, as attempt 1 and under their ids.

        A dead letter is removed when its job is safe on its queue. So this can be interrupted at
        any moment and called again; what was under way may then be there twice. Bodies that are no
        envelopes are passed over.

        Args:
            match: Which ones; all by default.
            limit: How many at most.
            rate: How many a second at most.
            payload: The job as JSON, in place of what it was, for each of them.
            each: Called with the number of those that were just requeued; what it raises ends this.

        Returns:
            How many were requeued.

        Raises:
            ConfigurationError: The rate is not above 0.
            QueueyError: One was not taken; it is a dead letter still, as are all that follow.
        """
        if rate is not None and not rate > 0:
            raise ConfigurationError(f"rate: expected a number above 0, got {rate!r}")

        def is_meant(job: DeadJob) -> bool:
            return job.envelope is not None and (match is None or match(job))

        total = 0
        with closing(self._backend.open_dead(self._config)) as dead:
            jobs = _matching(dead, is_meant, limit)
            while batch := list(islice(jobs, _batch_size(rate))):
                copies = [(job.found, job.envelope.again(payload)) for job in batch if job.envelope]
                failures = dead.requeue(copies)
                done = len(copies) - len(failures)
                total += done
                if each is not None:
                    each(done)
                for error in failures.values():
                    error.add_note(f"{total} were requeued")
                    raise error
                if rate is not None:
                    dead.wait(len(copies) / rate)
        return total

    def drop(
        self,
        match: Match | None = None,
        *,
        limit: int | None = None,
        each: Callable[[int], object] | None = None,
    ) -> int:
        """Delete those that match, for good; arguments and errors as for `requeue`."""
        total = 0
        with closing(self._backend.open_dead(self._config)) as dead:
            jobs = _matching(dead, match, limit)
            while batch := list(islice(jobs, _TOGETHER)):
                dead.remove([job.found for job in batch])
                total += len(batch)
                if each is not None:
                    each(len(batch))
        return total


def _batch_size(rate: float | None) -> int:
    return _TOGETHER if rate is None else max(1, min(_TOGETHER, int(rate)))


def _matching(dead: DeadQueue, match: Match | None, limit: int | None) -> Iterator[DeadJob]:
    jobs = (DeadJob(found, _envelope(found)) for found in dead.read())
    return islice((job for job in jobs if match is None or match(job)), limit)


def _envelope(found: DeadBody) -> Envelope | None:
    try:
        return Envelope.decode(found.body)
    except MalformedEnvelope:
        return None
