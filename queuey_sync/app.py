"""`Queuey`: a queue set, its handlers and where its jobs wait; what code and command line share.

It only puts pieces together that are public and usable alone: `Handlers`, `Producer`, `Worker`,
`connect`. Making one dials nothing; the first job that is enqueued, or the worker, connects.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import Any, Generic, TypeVar
from uuid import UUID

from queuey_sync.backends.base import Backend
from queuey_sync.backends.urls import connect
from queuey_sync.durations import Duration
from queuey_sync.errors import ConfigurationError
from queuey_sync.handlers import Handlers
from queuey_sync.jobs import Job
from queuey_sync.observe.dead_letters import DeadLetters
from queuey_sync.producer import Producer
from queuey_sync.queues import QueueSet
from queuey_sync.worker.worker import Worker

Q = TypeVar("Q", bound=QueueSet)


class Queuey(Generic[Q]):
    """An app: the one object that your jobs module, your views and ``queuey-sync worker`` share.

    Args:
        queues: The queue set.
        url: Where jobs wait, as for `connect`; the environment's ``QUEUEY_URL`` if not given, read
            when it is first needed. Or ``inline:``, to run each job at once in the thread that
            enqueues it, for development.
        options: The options of the backend, as for `connect`; ``inline:`` leaves them alone.

    Raises:
        ConfigurationError: An argument is wrong; the options are checked as soon as a URL tells
            which backend they are for.

    >>> from queuey_sync import Job, QueueSet, queue
    >>> class Queues(QueueSet, prefix="shop"):
    ...     EMAILS = queue()
    >>> class SendEmail(Job[Queues], queue=Queues.EMAILS, name="mail.send"):
    ...     to: str
    >>> app = Queuey(Queues, url="memory:")
    >>> @app.handler
    ... def send_email(job: SendEmail) -> None:
    ...     print("sending to", job.to)
    ...     worker.handle().shutdown()
    >>> job_id = app.enqueue(SendEmail(to="ada@example.org"))
    >>> worker = app.worker()
    >>> worker.run()
    sending to ada@example.org
    """

    def __init__(
        self,
        queues: type[Q],
        url: str | Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401 - of whichever backend
    ) -> None:
        self.queues = queues
        self.handlers: Handlers[Q] = Handlers(queues)
        self.handler = self.handlers.register
        """``@app.handler`` or ``@app.handler(SendEmail)``: see `Handlers.register`."""
        self.around = self.handlers.around
        """``app.around(factory)``: see `Handlers.around`."""
        self.on_start = self.handlers.on_start
        """``app.on_start(function)``: see `Handlers.on_start`."""
        self._url = url
        self._options = options
        self._lock = threading.Lock()
        self._backend: Backend | None = None if url is None else self._connect(url)
        """Guarded by `_lock`, as is the next one."""
        self._stand_in: Backend | None = None
        self._producer: Producer[Q] | None = None
        """The one for the backend in use, if it was made. Written under `_lock`."""

    @property
    def url(self) -> str | Sequence[str] | None:
        """Where jobs wait, as it was given; None for where the environment says."""
        return self._url

    def connect_to(
        self,
        url: str | Sequence[str] | EllipsisType | None = ...,
        **options: Any,  # noqa: ANN401 - of whichever backend
    ) -> None:
        """Use this URL and these options in place of those given; a backend made is closed.

        Args:
            url: As for the app itself, None included; ``...`` leaves it as it is.
            **options: As for the app itself; those that are not given stay.
        """
        self.close()
        if not isinstance(url, EllipsisType):
            self._url = url
        self._options = {**self._options, **options}

    def backend(self) -> Backend:
        """Where the jobs wait; made when first asked for.

        Raises:
            ConfigurationError: No URL was given, or it cannot be used.
        """
        with self._lock:
            if self._stand_in is not None:
                return self._stand_in
            if self._backend is None:
                url = _url_of_environment() if self._url is None else self._url
                self._backend = self._connect(url)
            return self._backend

    @contextmanager
    def using(self, backend: Backend) -> Iterator[None]:
        """Put a backend in the place of the app's own, in every thread, for a ``with`` block.

        Nothing is dialled, and the caller closes the backend; `close` leaves it alone. Tests use
        this; see `queuey_sync.testing.use_memory`.
        """
        with self._lock:
            before, self._stand_in, self._producer = self._stand_in, backend, None
        try:
            yield
        finally:
            with self._lock:
                self._stand_in, self._producer = before, None

    def _connect(self, url: str | Sequence[str]) -> Backend:
        if url == "inline:":
            from queuey_sync.worker.inline import InlineBackend  # noqa: PLC0415 - not for the rest

            return InlineBackend(self.queues, self.handlers)
        return connect(url, **self._options)

    def producer(self) -> Producer[Q]:
        """What enqueues jobs; made, and the queues declared, when first asked for."""
        producer = self._producer
        if producer is None:
            backend = self.backend()
            # Not under the lock: without a broker each thread waits here for its time limit, and
            # they must do so side by side. Declaring twice does no harm.
            producer = Producer(backend, self.queues)
            with self._lock:
                if backend is (self._stand_in or self._backend):
                    self._producer = producer
        return producer

    def worker(self, **options: Any) -> Worker[Q]:  # noqa: ANN401 - those of `Worker`
        """A worker for this app's handlers; takes the keyword arguments of `Worker`."""
        return Worker(self.backend(), self.queues, handlers=self.handlers, **options)

    def enqueue(self, job: Job[Q], correlation_id: str | None = None) -> UUID:
        """Publish a job; see `Producer.enqueue`."""
        return self.producer().enqueue(job, correlation_id)

    def enqueue_after(
        self, job: Job[Q], delay: Duration, correlation_id: str | None = None
    ) -> UUID:
        """Publish a job that becomes visible later; see `Producer.enqueue_after`."""
        return self.producer().enqueue_after(job, delay, correlation_id)

    def defer(self, job: Job[Q], delay: Duration, correlation_id: str | None = None) -> UUID:
        """Hold a job, then put it ahead of ordinary work; see `Producer.defer`."""
        return self.producer().defer(job, delay, correlation_id)

    def enqueue_many(self, jobs: Iterable[Job[Q]]) -> list[UUID]:
        """Publish jobs together; see `Producer.enqueue_many`."""
        return self.producer().enqueue_many(jobs)

    def dead_letters(self, queue: Q) -> DeadLetters:
        """The dead letters of one of the app's queues: find, requeue, drop; see `DeadLetters`."""
        return DeadLetters(self.backend(), queue.config)

    def close(self) -> None:
        """Let publishes under way finish and close the backend; the app can be used again after."""
        with self._lock:
            backend, self._backend, self._producer = self._backend, None, None
        if backend is not None:
            backend.close()


def _url_of_environment() -> str:
    url = os.environ.get("QUEUEY_URL")
    if not url:
        raise ConfigurationError(
            "nothing says where jobs wait: set QUEUEY_URL=sqlite:///queuey.db for a file, or"
            " QUEUEY_URL=amqp://… for RabbitMQ, or give url="
        )
    return url
