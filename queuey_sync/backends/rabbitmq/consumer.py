"""Consuming: one thread that owns one blocking connection, with a channel for each queue.

The thread moves deliveries into the worker's inbox, serves heartbeats, and sends the settlements
that other threads hand to it; it runs no user code and publishes nothing. Other threads only append
to a deque and wake it with ``add_callback_threadsafe``, the one call that pika allows them.
"""

import enum
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty
from typing import TypeVar

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.connection import Parameters
from pika.exceptions import AMQPError, ChannelClosed, ChannelWrongStateError
from pika.spec import Basic, BasicProperties

from queuey_sync.backends.base import Inbox, Listener, Survey
from queuey_sync.backends.rabbitmq.channel import ConsumerChannel, Settling
from queuey_sync.backends.rabbitmq.delivery import Copies, RabbitMQDelivery
from queuey_sync.backends.rabbitmq.dialling import address, fault_text, quieten_pika
from queuey_sync.errors import (
    BackendError,
    BrokerUnavailable,
    ConsumerStopped,
    QueueyError,
    SettleError,
)
from queuey_sync.observe.escaping import one_line
from queuey_sync.queues import QueueConfig

E = TypeVar("E", bound=QueueyError)

log = logging.getLogger(__name__)

_POLL = 1.0
"""Seconds that the thread waits for news at a time; any news ends the wait."""
_CLOSE_LIMIT = 5.0
"""Seconds that a broker may take to hear of the last settlement before it is left alone."""
_IDLE_CLOSE_LIMIT = 1.5
"""Seconds that a broker which is owed no settlement may take to answer a goodbye."""


class _Phase(enum.Enum):
    CONNECTING = "connecting"
    CONSUMING = "consuming"
    ENDED = "ended"
    ABANDONED = "abandoned"
    """A stop came before it consumed: whatever the thread still does, nobody waits for it."""


class Consumer:
    """Consumes queues into an inbox (`queuey_sync.backends.base.Consumption`).

    Args:
        parameters: How to connect.
        configs: What to consume, and how many deliveries may be unsettled at a time.
        inbox: Where deliveries go.
        listener: Hears of the end, and of settlements that failed.
        copies: Where deliveries place their copies.
    """

    def __init__(
        self,
        parameters: Parameters,
        configs: Sequence[QueueConfig],
        inbox: Inbox,
        listener: Listener,
        copies: Copies,
    ) -> None:
        self._parameters = parameters
        self._configs = configs
        self._inbox = inbox
        self._listener = listener
        self._copies = copies
        self._lock = threading.Lock()
        self._phase = _Phase.CONNECTING
        """Changed under `_lock`. Read without it where a change may be noticed a moment late."""
        self._runners: int | None = None
        """How many sentinels a stop asked for; None before. Changed under `_lock`."""
        self._closing = False
        """Written once, by the thread that calls `close`."""
        self._backend_closed = False
        """Written once, by the thread that closes the backend."""
        self._gave_back = False
        """Changed under `_lock`, by the consumer thread."""
        self._settled: deque[tuple[RabbitMQDelivery, Settling]] = deque()
        """Appended by any thread, emptied by the consumer thread; at the very end by `close`."""
        self._settled_at = -math.inf
        """When a settlement was last handed over. Written by any thread, always to now."""
        self._flush_pending = False
        """Set before a flush is scheduled; cleared by the flush before it looks at `_settled`."""
        self._connection: pika.BlockingConnection | None = None
        """Set by the consumer thread before it is `CONSUMING`, and never changed after."""
        self._told = False
        """Whether the listener knows of the end. Guarded by `_lock`."""
        self._surveys: deque[Callable[[Survey], None]] = deque()
        """Who waits for one. Appended by any thread, emptied by the consumer thread."""
        # The consumer thread owns the rest.
        self._channels: list[ConsumerChannel] = []
        self._delivered = 0
        """How many deliveries were put into the inbox."""
        self._late: list[RabbitMQDelivery] = []
        """What arrived after the inbox was emptied, to be given back as well."""
        self._thread = threading.Thread(target=self._run, name="queuey-consumer", daemon=True)

    # Called by the worker.

    def survey(self, answer: Callable[[Survey], None]) -> None:
        """Have the consumer thread look at all queues; see `Consumption`."""
        self._surveys.append(answer)
        self._call(_nothing)

    def stop(self, runners: int) -> None:
        """Give back what nobody has taken, then wake the takers; see `Consumption`."""
        with self._lock:
            self._runners = runners
            if self._phase is _Phase.CONSUMING and not self._gave_back:
                self._call(_nothing)
                return
            if self._phase is _Phase.CONNECTING:
                # Nothing was delivered yet, and a dial can hang: it is abandoned, never joined.
                self._phase = _Phase.ABANDONED
            self._put_sentinels()

    def close(self) -> None:
        """Send what was settled, then hang up; see `Consumption`."""
        self._closing = True
        if self._phase is not _Phase.ABANDONED:
            self._call(_nothing)
            owed = self._settled_at + _CLOSE_LIMIT - time.monotonic()
            self._thread.join(max(owed, _IDLE_CLOSE_LIMIT))
            if self._thread.is_alive():
                silence = BackendError(f"{address(self._parameters)} does not answer")
                self._tell(self._stopped(silence))
        lost = SettleError("the connection was lost before the broker heard of it")
        for delivery, _ in self._take_settled():
            self._report(delivery, lost)

    # Called by the backend.

    def start(self) -> None:
        """Connect and consume, in a thread of its own."""
        self._thread.start()

    def refuse(self) -> None:
        """Be over before it began, for the backend is closed."""
        self._phase = _Phase.ABANDONED
        self._listener.ended(ConsumerStopped(self._configs[0].full_name))

    def backend_closed(self) -> None:
        """Take no more, and tell the listener; what runs can still be acked until `close`."""
        self._backend_closed = True
        self._call(_nothing)

    # Called by deliveries, on any thread.

    def check_open(self, delivery: RabbitMQDelivery) -> None:
        """Raise when the channel that this delivery came from is gone."""
        if self._phase is not _Phase.CONSUMING or not delivery.channel.is_open:
            raise SettleError(f"the channel that delivered {delivery.name} is gone")

    def settle(self, delivery: RabbitMQDelivery, settling: Settling) -> None:
        """Have a settlement sent soon; any number of them cost one wake-up."""
        self.check_open(delivery)
        self._settled_at = time.monotonic()
        self._settled.append((delivery, settling))
        if not self._flush_pending:
            self._flush_pending = True
            self._call(self._flush)

    def _call(self, callback: Callable[[], None]) -> None:
        """Have the consumer thread call this; when it is too late, `close` sees to the rest."""
        if self._connection is not None:
            with suppress(AMQPError):
                self._connection.add_callback_threadsafe(callback)

    # The consumer thread.

    def _run(self) -> None:
        error: QueueyError | None
        try:
            error = self._connect_and_serve()
        except Exception as fault:
            log.exception("the consumer thread failed")
            error = self._stopped(fault)
        self._end(error)

    def _connect_and_serve(self) -> QueueyError | None:
        quieten_pika()
        try:
            connection = pika.BlockingConnection(self._parameters)
        except (AMQPError, OSError) as fault:
            return _caused_by(fault, BrokerUnavailable(self._text("cannot reach", fault)))
        try:
            for config in self._configs:
                self._consume(connection, config)
            self._serve(connection)
        except AMQPError as fault:
            return self._stopped(fault)
        except QueueyError as error:
            return error
        finally:
            _hang_up(connection)
        return None

    def _text(self, what: str, fault: Exception) -> str:
        return f"{what} {address(self._parameters)}: {fault_text(fault, self._parameters)}"

    def _stopped(self, fault: Exception) -> ConsumerStopped:
        return _caused_by(fault, ConsumerStopped(self._configs[0].full_name))

    def _consume(self, connection: pika.BlockingConnection, config: QueueConfig) -> None:
        channel = ConsumerChannel(config.full_name, connection.channel())
        inbox, copies, queue = self._inbox, self._copies, config.full_name

        def on_message(
            _channel: BlockingChannel, method: Basic.Deliver, _: BasicProperties, body: bytes
        ) -> None:
            tag = method.delivery_tag or 0  # a delivery has one; only pika's types allow none
            delivery = RabbitMQDelivery(queue, body, tag, channel, self, copies)
            if self._gave_back:
                self._late.append(delivery)
            else:
                self._delivered += 1
                inbox.put(delivery)

        try:
            channel.consume(config.prefetch, on_message)
        except ChannelClosed as fault:
            text = self._text(f"cannot consume queue `{queue}` of", fault)
            raise BackendError(text) from fault
        self._channels.append(channel)

    def _serve(self, connection: pika.BlockingConnection) -> None:
        with self._lock:
            if self._phase is _Phase.ABANDONED:
                return
            self._connection = connection
            self._phase = _Phase.CONSUMING
        names = ", ".join(config.full_name for config in self._configs)
        log.info("consuming %s from %s", names, address(self._parameters))
        while not self._closing:
            connection.process_data_events(time_limit=_POLL)
            end = self._look_for_an_end()
            if not self._gave_back and (end is not None or self._runners is not None):
                self._give_back()
            if end is not None:
                self._tell(end)
            elif self._surveys and not self._gave_back:
                self._look_at_queues(connection)
        self._flush()

    def _look_for_an_end(self) -> ConsumerStopped | None:
        """What ends the consuming while the connection lives on, so that running jobs are acked."""
        for channel in self._channels:
            fault = channel.fault()
            if fault is not None:
                return _caused_by(fault, ConsumerStopped(channel.queue))
        if self._backend_closed and self._runners is None:
            return ConsumerStopped(self._configs[0].full_name)
        return None

    def _look_at_queues(self, connection: pika.BlockingConnection) -> None:
        answers = [self._surveys.popleft() for _ in range(len(self._surveys))]
        try:
            ready = {channel.queue: channel.ready() for channel in self._channels}
        except (ChannelClosed, ChannelWrongStateError):
            return  # `_look_for_an_end` sees it next
        connection.process_data_events(time_limit=0)  # counts what arrived meanwhile
        for answer in answers:
            answer(Survey(ready, self._delivered))

    def _give_back(self) -> None:
        with self._lock:
            # First of all, since a broker that has fallen silent answers no cancel.
            untaken = self._take_inbox()
            self._gave_back = True
            self._put_sentinels()
        alive = [channel for channel in self._channels if channel.is_open]
        for channel in alive:
            channel.cancel()
        given_back = [(delivery, Settling.REQUEUE) for delivery in (*untaken, *self._late)]
        for channel, batch in _by_channel(given_back):
            if channel in alive:  # what a dead one delivered is back on its queue already
                channel.send([(delivery.tag, settling) for delivery, settling in batch])

    def _flush(self) -> None:
        """Send every settlement handed over so far. Raises nothing, since pika would pass it on."""
        self._flush_pending = False
        for channel, batch in _by_channel(self._take_settled()):
            try:
                channel.send([(delivery.tag, settling) for delivery, settling in batch])
            except Exception as error:  # noqa: BLE001 - every one of them is told, whatever it was
                for delivery, _ in batch:
                    self._report(delivery, error)

    def _end(self, error: QueueyError | None) -> None:
        with self._lock:
            if self._phase is _Phase.ABANDONED:
                return
            self._phase = _Phase.ENDED
            if not self._gave_back:
                self._take_inbox()  # without the connection, all of it is back on its queue already
                self._put_sentinels()
        if error is not None:
            self._tell(error)

    def _tell(self, end: QueueyError) -> None:
        with self._lock:
            told, self._told = self._told, True
        if not told:
            self._listener.ended(end)

    # Shared by both sides.

    def _put_sentinels(self) -> None:
        for _ in range(self._runners or 0):
            self._inbox.put(None)

    def _take_inbox(self) -> list[RabbitMQDelivery]:
        """Everything that nobody has taken, in order."""
        taken = []
        with suppress(Empty):
            while True:
                delivery = self._inbox.get_nowait()
                if isinstance(delivery, RabbitMQDelivery):
                    taken.append(delivery)
        return taken

    def _take_settled(self) -> Iterator[tuple[RabbitMQDelivery, Settling]]:
        with suppress(IndexError):
            while True:
                yield self._settled.popleft()

    def _report(self, delivery: RabbitMQDelivery, error: Exception) -> None:
        if delivery.is_malformed:
            log.error("%s could not be settled: %s", delivery.name, one_line(error))
        else:
            self._listener.settle_failed(delivery, error)


def _by_channel(
    settled: Iterable[tuple[RabbitMQDelivery, Settling]],
) -> Iterable[tuple[ConsumerChannel, list[tuple[RabbitMQDelivery, Settling]]]]:
    batches: dict[ConsumerChannel, list[tuple[RabbitMQDelivery, Settling]]] = {}
    for delivery, settling in settled:
        batches.setdefault(delivery.channel, []).append((delivery, settling))
    return batches.items()


def _caused_by(fault: BaseException, error: E) -> E:
    error.__cause__ = fault
    return error


def _hang_up(connection: pika.BlockingConnection) -> None:
    with suppress(AMQPError):
        if connection.is_open:
            connection.close()


def _nothing() -> None:
    """Ends a wait of the loop: that it was called is all."""
