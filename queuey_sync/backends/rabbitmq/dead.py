"""A queue's dead letters on the broker, looked at and taken away; see `DeadQueue` in `base.py`.

What is read is in the hands of this connection until it is removed, or closed: then the broker puts
it back where it was. So a look that is killed loses nothing; and while it lasts, others do not see
what it has seen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from pika.exceptions import AMQPError, ChannelClosed

from queuey_sync.backends.base import DeadBody
from queuey_sync.backends.rabbitmq.dialling import Brokers, DialFailed, address, dial, fault_text
from queuey_sync.envelope import Envelope
from queuey_sync.errors import BackendError, BrokerUnavailable, QueueyError

Publish = Callable[[Sequence[Envelope]], dict[int, QueueyError]]
"""Places envelopes on their queues, as `Backend.publish_many` does."""


class BrokerDead:
    """A connection to a dead-letter queue.

    Args:
        brokers: Where to connect.
        queue: The dead-letter queue.
        publish: Over another connection.

    Raises:
        BackendError: There is no such queue.
        BrokerUnavailable: The broker cannot be reached.
    """

    def __init__(self, brokers: Brokers, queue: str, publish: Publish) -> None:
        try:
            self._connection, self._parameters = dial(brokers)
        except DialFailed as error:
            raise BrokerUnavailable(f"cannot reach {error}") from error
        self._queue = queue
        self._publish = publish
        with self._faults():
            self._channel = self._connection.channel()
            self._count = self._channel.queue_declare(queue, passive=True).method.message_count

    def read(self) -> Iterator[DeadBody]:
        """In the order of the queue; what dies meanwhile is not read."""
        for _ in range(self._count):
            with self._faults():
                method, properties, body = self._channel.basic_get(self._queue)
            if method is None or properties is None or body is None:
                return  # somebody else has taken some
            headers = dict(properties.headers or {})
            died_at = _time(properties.timestamp) or _died_at(headers)
            yield DeadBody(method.delivery_tag or 0, body, _reason(headers), died_at, headers)

    def requeue(self, copies: Sequence[tuple[DeadBody, Envelope]]) -> dict[int, QueueyError]:
        """Place them with confirms, then remove."""
        failures = self._publish([envelope for _, envelope in copies])
        self.remove([body for index, (body, _) in enumerate(copies) if index not in failures])
        return failures

    def remove(self, bodies: Sequence[DeadBody]) -> None:
        """Ack these."""
        with self._faults():
            for body in bodies:
                self._channel.basic_ack(body.number)
            self._connection.process_data_events(time_limit=0)

    def wait(self, seconds: float) -> None:
        """Serve the connection meanwhile."""
        with self._faults():
            self._connection.sleep(seconds)

    def close(self) -> None:
        """Hang up; what was not removed is back on its queue."""
        with suppress(AMQPError):
            if self._connection.is_open:
                self._connection.close()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (AMQPError, OSError) as fault:
            self.close()
            text = f"`{self._queue}` of {address(self._parameters)}"
            why = fault_text(fault, self._parameters)
            if isinstance(fault, ChannelClosed):
                raise BackendError(f"cannot look into {text}: {why}") from fault
            raise BrokerUnavailable(f"cannot look into {text}: {why}") from fault


def _reason(headers: Mapping[str, Any]) -> str:
    reason = headers.get("x-death-reason")
    if reason is not None:
        return str(reason)
    by_broker = _last_death(headers).get("reason")
    return f"{by_broker} (the broker's own reason)" if by_broker else "unknown"


def _died_at(headers: Mapping[str, Any]) -> datetime | None:
    return _time(_last_death(headers).get("time"))


def _last_death(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the broker notes when it dead-letters by itself."""
    deaths = headers.get("x-death")
    last = deaths[0] if isinstance(deaths, list) and deaths else {}
    return last if isinstance(last, dict) else {}


def _time(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, int):
        with suppress(OverflowError, ValueError, OSError):
            return datetime.fromtimestamp(value, UTC)
    return None
