"""`Producer`: turns jobs of one queue set into envelopes and publishes them through a backend.

It consults no retry policy and knows no kind of backend. Read next: `envelope.py` for what travels,
`backends/base.py` for where it goes.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar
from uuid import UUID

from queuey_sync.backends.base import Backend
from queuey_sync.context import correlation_id as current_correlation_id
from queuey_sync.durations import Duration, format_duration
from queuey_sync.envelope import Envelope
from queuey_sync.errors import ConfigurationError, PublishError, QueueyError
from queuey_sync.jobs import Job, job_type_of
from queuey_sync.queues import QueueSet, check_queue_set
from queuey_sync.retry import check_duration

Q = TypeVar("Q", bound=QueueSet)


class Producer(Generic[Q]):
    """Enqueues the jobs of one queue set; cheap to make, and usable by any thread.

    Type checkers refuse a job of another set. So does every method, with a `ConfigurationError` and
    before anything is published, as it does a delay that is none, or longer than the backend can
    hold. A job that cannot be encoded, or that its class could not decode again, is a
    `SerializationError`. What else is raised is what `Backend.publish` raises.

    Args:
        backend: Where the jobs go.
        queues: The queue set; every queue of it is declared now.
    """

    backend: Backend
    """Where the jobs go."""

    def __init__(self, backend: Backend, queues: type[Q]) -> None:
        check_queue_set(queues, "queues")
        self.backend = backend
        self._queues = queues
        backend.declare([queue.config for queue in queues])

    @classmethod
    def undeclared(cls, backend: Backend, queues: type[Q]) -> Self:
        """A producer that declares nothing, for a user of the broker who may only publish.

        `enqueue_after` and `defer` may need the queue declared through the same backend.
        """
        check_queue_set(queues, "queues")
        producer = cls.__new__(cls)
        producer.backend = backend
        producer._queues = queues  # noqa: SLF001 (an instance of this very class)
        return producer

    def enqueue(self, job: Job[Q], correlation_id: str | None = None) -> UUID:
        """Publish a job, and return its id when it is safe on its queue."""
        envelope = self._envelope(job, correlation_id)
        self.backend.publish(envelope)
        return envelope.job_id

    def enqueue_after(
        self, job: Job[Q], delay: Duration, correlation_id: str | None = None
    ) -> UUID:
        """Publish a job that becomes visible after `delay`, as ordinary work; return its id."""
        wait = check_delay(self.backend, delay)
        envelope = self._envelope(job, correlation_id)
        self.backend.publish(envelope, wait)
        return envelope.job_id

    def defer(self, job: Job[Q], delay: Duration, correlation_id: str | None = None) -> UUID:
        """Hold a job for `delay`, then put it ahead of ordinary work; return its id."""
        wait = check_delay(self.backend, delay)
        envelope = self._envelope(job, correlation_id, deferred=True)
        self.backend.defer(envelope, wait)
        return envelope.job_id

    def enqueue_many(self, jobs: Iterable[Job[Q]]) -> list[UUID]:
        """Publish jobs together, much faster than one by one, and return their ids in order.

        All are checked and encoded before the first is published.

        Raises:
            PublishError: Some were not taken: its ``failures`` has the error of each one by its
                index, its ``job_ids`` the ids of all. The others are on their queues exactly once.
        """
        envelopes: list[Envelope] = []
        for job in jobs:
            try:
                envelopes.append(self._envelope(job))
            except QueueyError as error:
                error.add_note(f"job {len(envelopes)} of those to enqueue")
                raise
        ids = [envelope.job_id for envelope in envelopes]
        failures = self.backend.publish_many(envelopes)
        if failures:
            first = next(iter(failures.values()))
            raise PublishError(
                f"{len(failures)} of {len(envelopes)} jobs were not taken; the first: {first}",
                failures,
                ids,
            ) from first
        return ids

    def _envelope(
        self, job: Job[Q], correlation_id: str | None = None, *, deferred: bool = False
    ) -> Envelope:
        level = job_type_of(job).queue.config.top_level if deferred else 0
        return envelope_of(job, self._queues, correlation_id, level)


def envelope_of(
    job: Job[Any],
    queues: type[QueueSet],
    correlation_id: str | None = None,
    priority: int = 0,
) -> Envelope:
    """What travels for a job; needs no backend, so that it can be made before it is published.

    Args:
        job: The job.
        queues: The queue set that it must belong to.
        correlation_id: Its mark; by default that of `correlated`, or of the job that runs here.
        priority: The level that it is queued with.

    Raises:
        ConfigurationError: It is no job, or one of another set.
        SerializationError: It cannot be encoded.
    """
    if not isinstance(job, Job):
        raise ConfigurationError(f"{job!r} is no job: give an instance of a job class")
    job_type = job_type_of(job)
    queue = job_type.queue
    if not isinstance(queue, queues):
        raise ConfigurationError(
            f"job `{job_type.name}` is of the queue set {type(queue).__name__},"
            f" and this producer is for {queues.__name__}"
        )
    mark = current_correlation_id() if correlation_id is None else correlation_id
    payload = job_type.encode(job)
    return Envelope.new(
        job_type.name, queue.full_name, payload, correlation_id=mark, priority=priority
    )


def check_delay(backend: Backend, delay: Duration) -> timedelta:
    """Read a delay, and refuse one that the backend cannot hold."""
    wait, longest = check_duration(delay, "delay", zero=True), backend.longest_delay
    if longest is not None and wait > longest:
        raise ConfigurationError(
            f"delay: {format_duration(wait)} is longer than a hold queue can wait"
            f" ({format_duration(longest)}): refused rather than released early"
        )
    return wait
