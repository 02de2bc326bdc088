"""Every error of this library, in one tree.

::

    QueueyError
    ├── ConfigurationError (also a ValueError)   a declaration, an argument or an app is wrong
    │   └── DuplicateHandler                     two handlers for one job type
    ├── SerializationError                       a job or a body that cannot be encoded or decoded
    │   └── MalformedEnvelope                    the body of a message is no envelope
    ├── BackendError                             the place where jobs wait said no
    │   ├── BrokerUnavailable                    it cannot be reached, or was lost
    │   ├── SettleError                          a delivery can no longer be acked
    │   └── PublishError                         a job was not taken; ``.failures`` for many at once
    │       ├── PublishUnroutable                the queue does not exist
    │       ├── PublishRefused                   the broker said no (a full queue, for one)
    │       └── PublishUnconfirmed               no answer in time; ``.maybe_published`` tells more
    ├── UnknownQueue                             a queue that was never declared here
    ├── ShutDown                                 the backend is closed
    ├── ConsumerStopped                          the broker or the connection went away
    ├── StartError                               what handlers run in could not be started
    ├── WorkerStuck                              every slot is held by an overdue handler
    ├── StopTimedOut                             jobs still ran at the deadline of a stop
    └── JobError                                 raised by handlers, to say how a job ended
        ├── Retryable                            try again, as the retry policy says
        ├── Fatal                                never try again
        └── Deferred                             not now; costs no attempt

    BaseException
    └── Interrupt                                crosses a handler's ``except Exception``
        ├── JobTimedOut                          the time limit is over
        ├── SoftTimeout                          the time limit is near
        └── Stopping                             the worker is stopping: give the job back

Messages say what happened, to which queue or job, and what to do. No message holds a password.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from queuey_sync.durations import Duration, format_duration, parse_duration


class QueueyError(Exception):
    """The root of this library's errors. They may be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Most of them build their text when they are made, which must not happen twice.
        return _remake, (type(self), self.args, self.__dict__)


def _remake(kind: type[QueueyError], args: tuple[Any, ...], state: dict[str, Any]) -> QueueyError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigurationError(QueueyError, ValueError):
    """A declaration, an argument or an app is wrong; the text names the key."""


class DuplicateHandler(ConfigurationError):
    """Two handlers were registered for one job type, or for two of the same name.

    Attributes:
        job_type: The name.
    """

    def __init__(self, job_type: str, hint: str = "") -> None:
        text = f"handler for job type `{job_type}` registered twice"
        super().__init__(f"{text}: {hint}" if hint else text)
        self.job_type = job_type


class SerializationError(QueueyError):
    """A job cannot be encoded, or a body cannot be decoded."""

    def __init__(self, text: str) -> None:
        super().__init__(f"serialization error: {text}")


class MalformedEnvelope(SerializationError):
    """The body of a message is no envelope; a worker puts it into the dead-letter queue."""


class BackendError(QueueyError):
    """The place where jobs wait refused, or failed."""

    def __init__(self, text: str) -> None:
        super().__init__(f"backend error: {text}")


class BrokerUnavailable(BackendError):
    """The broker cannot be reached, or the connection to it was lost."""


class SettleError(BackendError):
    """A delivery can no longer be settled: the broker gives the job to a worker again."""


class PublishError(BackendError):
    """A job was not taken by the broker.

    Attributes:
        failures: After ``enqueue_many``, the error of each job that was not taken, by its index;
            every other job is on its queue exactly once. Empty for a single publish.
        job_ids: After ``enqueue_many``, the id of every job, by its index.
    """

    def __init__(
        self,
        text: str,
        failures: Mapping[int, QueueyError] | None = None,
        job_ids: Sequence[UUID] = (),
    ) -> None:
        super().__init__(text)
        self.failures: Mapping[int, QueueyError] = dict(failures or {})
        self.job_ids: Sequence[UUID] = tuple(job_ids)


class PublishUnroutable(PublishError):
    """The queue does not exist: declare it, or mend its name."""


class PublishRefused(PublishError):
    """The broker refused the message, for a full queue that rejects, for example."""


class PublishUnconfirmed(PublishError):
    """The time limit ended before the broker confirmed.

    Attributes:
        maybe_published: False when the message was never sent, True when it was sent and its fate
            is unknown (publishing it again may make a second copy).
    """

    def __init__(self, text: str, *, maybe_published: bool) -> None:
        super().__init__(text)
        self.maybe_published = maybe_published


class UnknownQueue(QueueyError):
    """The queue was never declared through this backend."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"unknown queue `{queue}`")
        self.queue = queue


class ShutDown(QueueyError):
    """The backend is closed."""

    def __init__(self, text: str = "worker is shut down") -> None:
        super().__init__(text)


class ConsumerStopped(QueueyError):
    """The broker or the connection went away unasked; the fault is in ``__cause__``."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"consumer for queue `{queue}` stopped unexpectedly")
        self.queue = queue


class StartError(QueueyError):
    """What handlers run in could not be started: a child process, or an ``on_start`` function."""


class StopTimedOut(QueueyError):
    """A stop took longer than its deadline; the jobs that still ran go back to their queues."""


class WorkerStuck(QueueyError):
    """Every slot is held by a handler over its time limit; restart the process."""

    def __init__(self, slots: int) -> None:
        super().__init__(
            f"all {slots} slots are held by handlers over their time limit, and threads cannot be"
            " killed; restart the process"
        )
        self.slots = slots


class JobError(QueueyError):
    """What a handler raises to say how its job ended; raise one of the subclasses.

    Attributes:
        reason: The text of the wrapped error, alone.
    """

    reason: str


class Retryable(JobError):
    """Try the job again, as its retry policy says.

    >>> str(Retryable("no route")), Retryable(OSError("gone")).reason
    ('job failed (retryable): no route', 'gone')
    """

    def __init__(self, reason: str | BaseException = "") -> None:
        self.reason = str(reason)
        super().__init__(f"job failed (retryable): {self.reason}")


class Fatal(JobError):
    """Never try the job again: it goes to the dead-letter queue at once.

    >>> str(Fatal("refused address"))
    'job failed (fatal): refused address'
    """

    def __init__(self, reason: str | BaseException = "") -> None:
        self.reason = str(reason)
        super().__init__(f"job failed (fatal): {self.reason}")


class Deferred(JobError):
    """Not now: the job waits outside the worker, and the attempt is not counted.

    Raises:
        ConfigurationError: The delay is none.

    >>> str(Deferred("90s", "rate limited"))
    'job deferred for 90s: rate limited'
    """

    def __init__(self, delay: Duration, reason: str = "deferred") -> None:
        try:
            self.delay = parse_duration(delay, "delay")
        except (ValueError, TypeError) as error:
            raise ConfigurationError(str(error)) from None
        self.reason = reason
        super().__init__(f"job deferred for {format_duration(self.delay)}: {reason}")


class Interrupt(BaseException):
    """Crosses a handler's ``except Exception``, so that nothing swallows it by accident."""


class JobTimedOut(Interrupt):
    """The job's time limit is over."""


class SoftTimeout(Interrupt):
    """The job's time limit is near: clean up and leave."""


class Stopping(Interrupt):
    """The worker is stopping: the job goes back to its queue and the attempt is not counted."""
