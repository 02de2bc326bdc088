"""The seam between the worker and the place where jobs wait: `Backend`, `Delivery`, `Consumption`.

A backend stores envelopes on named queues and pushes deliveries into the worker's one inbox. It
knows nothing of handlers, policies or threads that run jobs. `memory/` is the example to read;
the RabbitMQ one is in `rabbitmq/`. Two laws hold for all of them:

- *Schedule before ack*: a retry, a deferral or a dead letter is durably placed before the original
  is settled; when placing fails the original stays unsettled, and so it comes back.
- *Nothing is released early*: a delay is a least time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from queuey_sync.envelope import Envelope
from queuey_sync.errors import BackendError, QueueyError
from queuey_sync.queues import QueueConfig
from queuey_sync.shutdown import Backoff


class Delivery(ABC):
    """One message in the hands of a worker. Exactly one settling call, from any thread.

    Every settling call raises `SettleError` when the delivery is settled already, or can no longer
    be settled because its connection is gone, and another `QueueyError` when placing the copy
    failed; the delivery is then still unsettled.
    """

    queue: str
    """The full name of the queue that it was consumed from."""

    body: bytes
    """What was delivered, verbatim."""

    @property
    @abstractmethod
    def envelope(self) -> Envelope:
        """The decoded body; decoded by the thread that asks.

        Raises:
            MalformedEnvelope: The body is no envelope; `bury` is then the one call left.
        """

    @abstractmethod
    def ack(self) -> None:
        """The job is done with."""

    @abstractmethod
    def retry(self, next_attempt: Envelope, delay: timedelta) -> None:
        """Place `next_attempt` to become visible after `delay`, then ack."""

    @abstractmethod
    def defer(self, deferred: Envelope, delay: timedelta) -> None:
        """Hold `deferred` for `delay`, then ack."""

    @abstractmethod
    def dead_letter(self, reason: str) -> None:
        """Place the delivered body on the dead-letter queue, then ack."""

    @abstractmethod
    def release(self) -> None:
        """Give the job back to its queue unchanged, for any worker to take."""

    @abstractmethod
    def bury(self) -> None:
        """Put a body that is no envelope where malformed bodies go. Logs, and never raises."""


class Listener(Protocol):
    """What a worker wants to hear from a consumption.

    Called from the backend's threads; `ended` also from inside `Backend.consume` or
    `Backend.close`.
    """

    def ended(self, error: QueueyError) -> None:
        """The consumption ended without being asked to; called at most once.

        `ConsumerStopped` says that the broker or a queue went away; its ``__cause__`` is the fault,
        and is None when the backend was closed in good order. Anything else is a failure to start.
        """

    def redelivers(self, queue: str) -> None:
        """What was delivered of this queue and is not settled is back on it, to be delivered again.

        The consumption goes on, after a loss that it has healed.
        """

    def settle_failed(self, delivery: Delivery, error: Exception) -> None:
        """An `ack` or `release` that had been accepted did not reach the broker after all."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a consumption saw in one pass over its queues, made between two deliveries."""

    ready: Mapping[str, int]
    """How many jobs wait on each queue, by its full name."""
    delivered: int
    """How many deliveries had been put into the inbox, in all, when the pass was over."""


class Pulse(NamedTuple):
    """A sign of life of a consumption."""

    turned: float
    """When its thread last went round, on the monotonic clock."""
    consuming: bool
    """Whether it has its queues; or is on its way to them."""


class Consumption(Protocol):
    """A running consumption of some queues into one inbox."""

    def pulse(self) -> Pulse:
        """Whether its thread goes round; from any thread, at once."""
        ...

    def survey(self, answer: Callable[[Survey], None]) -> None:
        """Look at all queues once; returns at once, and calls `answer` from any thread.

        A job that was on its way to the inbox during the pass is in one of the two figures: a
        survey with nothing ready, and no more delivered than was finished before it was asked for,
        found the queues empty and nothing in hand. No answer comes once the consumption has ended.
        """

    def stop(self, runners: int) -> None:
        """Take no more from the queues, give back what nobody has taken, then wake the takers.

        Everything still in the inbox goes back to its queue, in order, without counting as an
        attempt; after that `runners` sentinels (None) are put into the inbox. Returns at once;
        works in every state, also while still connecting and after the consumption ended. Called
        once.
        """

    def close(self) -> None:
        """Deliver every settling call made so far, then let go of the connection. Bounded in time.

        Called once, after `stop`. What is still unsettled then goes back to its queue, and whoever
        settles it later gets `SettleError`. What could not be delivered has been reported to
        `Listener.settle_failed` when this returns.
        """


@dataclass(frozen=True, slots=True)
class Depth:
    """What one queue holds, as far as its backend can tell."""

    ready: int
    """Jobs that wait for a worker."""
    held: int | None
    """Retries, delays and deferrals that are not due yet; None where nobody can count them."""
    dead: int
    """Dead letters, malformed bodies among them."""
    consumers: int
    """How many workers consume it."""
    next_due: datetime | None = None
    """When the first of the held ones is due, if that is known; with a time zone."""


@dataclass(frozen=True, slots=True, eq=False)
class DeadBody:
    """What lies on a dead-letter queue, as its backend keeps it."""

    number: int
    """What a `DeadQueue` knows it by while it is open."""
    body: bytes
    reason: str
    died_at: datetime | None
    """With a time zone; None where nobody wrote it down."""
    headers: Mapping[str, object] = field(default_factory=dict)
    """What the broker keeps beside the body, its own history included."""


class DeadQueue(Protocol):
    """The dead letters of one queue, opened by one thread, which closes it.

    Whatever ends it, what was not requeued or removed is where it was.
    """

    def read(self) -> Iterator[DeadBody]:
        """Each of those that are there now, the oldest first; once."""
        ...

    def requeue(self, copies: Sequence[tuple[DeadBody, Envelope]]) -> dict[int, QueueyError]:
        """Place these envelopes on their queues, and remove the bodies that they come from.

        A body is removed when its envelope is safe. Returns the error of each one that was not
        taken, by its index; its body stays.
        """
        ...

    def remove(self, bodies: Sequence[DeadBody]) -> None:
        """Delete these."""

    def wait(self, seconds: float) -> None:
        """Let time pass; what is open stays so."""

    def close(self) -> None:
        """Let go of it."""


Inbox = SimpleQueue[Delivery | None]
"""Deliveries for whichever runner is free; None ends the runner that takes it."""


class Backend(ABC):
    """A place where jobs wait. Every method may be called from any thread."""

    @property
    def longest_delay(self) -> timedelta | None:
        """The longest delay that it can hold, None for no limit; a longer one is refused."""
        return None

    @property
    def settle_limit(self) -> timedelta | None:
        """How long a worker may keep a job, as far as is known; None where that has no limit."""
        return None

    @property
    def delay_step(self) -> timedelta:
        """What delays are rounded up to; zero where they are kept exactly."""
        return timedelta(0)

    @abstractmethod
    def declare(self, configs: Sequence[QueueConfig]) -> None:
        """Make these queues exist. Idempotent; nothing is dropped or changed.

        Raises:
            BackendError: A queue exists with other properties, or the broker refused.
            BrokerUnavailable: It cannot be reached.
        """

    @abstractmethod
    def publish(self, envelope: Envelope, delay: timedelta | None = None) -> None:
        """Place an envelope on its queue, visible after `delay`; returns when it is safe there.

        Raises:
            PublishError: The broker did not take it.
            UnknownQueue: A delay needs a queue that was declared here.
            BrokerUnavailable: It cannot be reached.
            ShutDown: This backend is closed.
        """

    @abstractmethod
    def defer(self, envelope: Envelope, delay: timedelta) -> None:
        """Hold an envelope for `delay`; errors as for `publish`."""

    def publish_many(self, envelopes: Sequence[Envelope]) -> dict[int, QueueyError]:
        """Publish all, and return the error of each one that was not taken, by index.

        Override it where publishing together is faster than one by one.
        """
        failures: dict[int, QueueyError] = {}
        for index, envelope in enumerate(envelopes):
            try:
                self.publish(envelope)
            except QueueyError as error:
                failures[index] = error
        return failures

    @abstractmethod
    def consume(
        self,
        configs: Sequence[QueueConfig],
        inbox: Inbox,
        listener: Listener,
        reconnect: Backoff | None = None,
    ) -> Consumption:
        """Start pushing deliveries into `inbox`, at most `prefetch` of each queue unsettled.

        Returns at once; that the broker could not be reached is told to the listener. With
        `reconnect`, a loss after the first success is healed: it waits, and connects again, for
        ever; without it, and where there is no connection to lose, a loss is the end.
        """

    @abstractmethod
    def depths(self, configs: Sequence[QueueConfig]) -> list[Depth]:
        """What each of these queues holds now; nothing is taken or changed.

        Raises:
            BackendError: One of them does not exist, or the broker refused.
            BrokerUnavailable: It cannot be reached.
            ShutDown: This backend is closed.
        """

    def open_dead(self, config: QueueConfig) -> DeadQueue:
        """Look into the dead letters of a queue.

        Raises:
            BackendError: The queue does not exist, or this backend keeps no dead letters.
            BrokerUnavailable: It cannot be reached.
            ShutDown: This backend is closed.
        """
        raise BackendError(f"nobody can look into the dead letters of `{config.full_name}` here")

    @abstractmethod
    def close(self) -> None:
        """Let publishes under way finish, then close. Idempotent and final."""

    @abstractmethod
    def is_closed(self) -> bool:
        """Whether `close` was called."""
