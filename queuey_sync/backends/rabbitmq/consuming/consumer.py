"""Consuming: one thread that owns one blocking connection at a time (`session.py`).

The thread moves deliveries into the worker's inbox, serves heartbeats, and sends the settlements
that other threads hand to it; it runs no user code and publishes nothing. Other threads only append
to a deque and wake it with ``add_callback_threadsafe``, the one call that pika allows them. If it
is to reconnect, it dials again after a loss; else the loss is the end.
"""

import enum
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

import pika
from pika.exceptions import AMQPError, ChannelClosed, ChannelWrongStateError

from queuey_sync.backends.base import Inbox, Listener, Pulse, Survey
from queuey_sync.backends.rabbitmq.consuming.channel import ConsumerChannel, Settling
from queuey_sync.backends.rabbitmq.consuming.delivery import Copies, RabbitMQDelivery
from queuey_sync.backends.rabbitmq.consuming.session import Session, by_channel
from queuey_sync.backends.rabbitmq.consuming.untaken import Untaken
from queuey_sync.backends.rabbitmq.dialling import Brokers, addresses
from queuey_sync.backends.rabbitmq.topology import Topology
from queuey_sync.durations import format_duration
from queuey_sync.errors import BackendError, ConsumerStopped, QueueyError, SettleError
from queuey_sync.observe.escaping import one_line
from queuey_sync.queues import QueueConfig
from queuey_sync.shutdown import Backoff, Shutdown

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
        brokers: Where to connect.
        configs: What to consume, and how many deliveries may be unsettled at a time.
        inbox: Where deliveries go.
        listener: Hears of the end, and of settlements that failed.
        copies: Where deliveries place their copies.
        topology: What to declare when consuming begins again.
        reconnect: How long to wait before each new dial after a loss; None for not at all.
    """

    def __init__(  # noqa: PLR0917
        self,
        brokers: Brokers,
        configs: Sequence[QueueConfig],
        inbox: Inbox,
        listener: Listener,
        copies: Copies,
        topology: Topology,
        reconnect: Backoff | None,
    ) -> None:
        self._brokers = brokers
        self._topology = topology
        self._reconnect = reconnect
        self._halt = Shutdown()
        """Stopped by a stop, to end the wait before a dial."""
        self._configs = configs
        self._untaken = Untaken(inbox)
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
        """That of the session. Set by the consumer thread, before it is `CONSUMING`."""
        self._turned = time.monotonic()
        """When the thread last went round. Written by the consumer thread."""
        self._told = False
        """Whether the listener knows of the end. Guarded by `_lock`."""
        self._surveys: deque[Callable[[Survey], None]] = deque()
        """Who waits for one. Appended by any thread, emptied by the consumer thread."""
        # The consumer thread owns the rest.
        self._session: Session | None = None
        """The last one; None before the first."""
        self._late: list[RabbitMQDelivery] = []
        """What arrived after the inbox was emptied, to be given back as well."""
        self._thread = threading.Thread(target=self._run, name="queuey-consumer", daemon=True)

    # Called by the worker.

    def pulse(self) -> Pulse:
        """It turns at least once a second while it consumes."""
        return Pulse(self._turned, consuming=self._phase is _Phase.CONSUMING)

    def survey(self, answer: Callable[[Survey], None]) -> None:
        """Have the consumer thread look at all queues; see `Consumption`."""
        self._surveys.append(answer)
        self._call(_nothing)

    def stop(self, runners: int) -> None:
        """Give back what nobody has taken, then wake the takers; see `Consumption`."""
        self._halt.stop()
        with self._lock:
            self._runners = runners
            if self._phase is _Phase.CONSUMING and not self._gave_back:
                self._call(_nothing)
                return
            if self._phase is _Phase.CONNECTING:
                # Nothing was delivered yet, and a dial can hang: it is abandoned, never joined.
                self._phase = _Phase.ABANDONED
            self._untaken.wake(self._runners or 0)

    def close(self) -> None:
        """Send what was settled, then hang up; see `Consumption`."""
        self._closing = True
        if self._phase is not _Phase.ABANDONED:
            self._call(_nothing)
            owed = self._settled_at + _CLOSE_LIMIT - time.monotonic()
            self._thread.join(max(owed, _IDLE_CLOSE_LIMIT))
            if self._thread.is_alive():
                silence = BackendError(f"{addresses(self._brokers)} does not answer")
                self._tell(self._stopped(silence))
        self._fail_settled()

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
        self._halt.stop()
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
            while error is not None and self._waited_after(error):
                error = self._connect_and_serve()
        except Exception as fault:
            log.exception("the consumer thread failed")
            error = self._stopped(fault)
        self._end(error)

    def _connect_and_serve(self) -> QueueyError | None:
        try:
            session = Session(self._brokers, self._arrived)
        except QueueyError as error:
            return error
        try:
            for config in self._configs:
                if self._session is not None:
                    session.declare(self._topology.declarations(config))
                session.consume(config)
            return self._serve(session)
        except AMQPError as fault:
            return self._stopped(fault)
        except QueueyError as error:
            return error
        finally:
            session.hang_up()

    def _waited_after(self, error: QueueyError) -> bool:
        """Wait until it is time for a new dial; False when there is to be none."""
        if self._reconnect is None or self._session is None:
            return False  # the first dial fails at once
        with self._lock:
            if self._phase is _Phase.ABANDONED or self._runners is not None or self._gave_back:
                return False
            self._phase = _Phase.CONNECTING
        self._untaken.drop(self._session.channels)  # all of it is back on its queues
        self._fail_settled()
        for config in self._configs:
            self._listener.redelivers(config.full_name)
        lost = isinstance(error, ConsumerStopped)
        what = f"lost {self._session.address}: {error.__cause__}" if lost else str(error)
        delay = format_duration(self._reconnect.failed())
        log.warning("%s; connecting again in %s", one_line(what), delay)
        return self._reconnect.wait(self._halt.watcher())

    def _stopped(self, fault: BaseException) -> ConsumerStopped:
        return _caused_by(fault, ConsumerStopped(self._configs[0].full_name))

    def _arrived(self, channel: ConsumerChannel, tag: int, body: bytes) -> None:
        delivery = RabbitMQDelivery(channel.queue, body, tag, channel, self, self._copies)
        channel.in_hand[tag] = delivery
        if self._gave_back:
            self._late.append(delivery)
        else:
            self._untaken.put(delivery)

    def _serve(self, session: Session) -> QueueyError | None:
        with self._lock:
            if self._phase is _Phase.ABANDONED:
                return None
            self._session = session
            self._connection = session.connection
            self._phase = _Phase.CONSUMING
        if self._reconnect is not None:
            self._reconnect.succeeded()
        names = ", ".join(config.full_name for config in self._configs)
        log.info("consuming %s from %s", names, session.address)
        self._flush()
        while not self._closing:
            self._turned = time.monotonic()
            if self._surveys and not self._gave_back:
                self._answer(session)
            session.connection.process_data_events(time_limit=_POLL)
            if (loss := session.loss()) is not None:  # noticed while something was sent
                return self._stopped(loss)
            end = self._look_for_an_end(session)
            if not self._gave_back and (end is not None or self._runners is not None):
                self._give_back(session)
            if end is not None:
                self._tell(end)
        self._flush()
        return None

    def _look_for_an_end(self, session: Session) -> ConsumerStopped | None:
        """What ends the consuming while the connection lives on, so that running jobs are acked."""
        for channel in list(session.channels):
            fault = channel.fault()
            if fault is not None and not self._reopened(session, channel, fault):
                return _caused_by(fault, ConsumerStopped(channel.queue))
        if self._backend_closed and self._runners is None:
            return ConsumerStopped(self._configs[0].full_name)
        return None

    def _reopened(self, session: Session, channel: ConsumerChannel, fault: BaseException) -> bool:
        """Consume a queue again whose channel or consumer is gone, if that is to be done."""
        overdue = channel.overdue()
        if self._gave_back or not (overdue or self._reconnect is not None):
            return False
        if overdue:
            log.error(
                "%s was not settled within the broker's delivery acknowledgement timeout, so it"
                " runs again: raise the broker's consumer_timeout, or give the job a shorter time"
                " limit: %s",
                overdue,
                one_line(fault),
            )
        else:
            log.warning("queue `%s`: %s; consuming it again", channel.queue, one_line(fault))
        session.channels.remove(channel)
        if not channel.is_open:
            self._untaken.drop([channel])
        self._listener.redelivers(channel.queue)
        if not overdue:
            session.declare(self._topology.declarations(channel.config))
        session.consume(channel.config)
        return True

    def _answer(self, session: Session) -> None:
        """Look at all queues, for those who wait for it."""
        answers = [self._surveys.popleft() for _ in range(len(self._surveys))]
        try:
            ready = session.survey()
        except (ChannelClosed, ChannelWrongStateError):
            self._surveys.extend(answers)  # `_look_for_an_end` sees it next
            return
        for answer in answers:
            answer(Survey(ready, self._untaken.delivered))

    def _give_back(self, session: Session) -> None:
        with self._lock:
            # First of all, since a broker that has fallen silent answers no cancel.
            untaken = self._untaken.take()
            self._gave_back = True
            self._untaken.wake(self._runners or 0)
        session.give_back([*untaken, *self._late])

    def _flush(self) -> None:
        """Send every settlement handed over so far. Raises nothing, since pika would pass it on."""
        self._flush_pending = False
        for channel, batch in by_channel(self._take_settled()):
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
                self._untaken.take()  # without the connection, it is all back on its queue
                self._untaken.wake(self._runners or 0)
        if error is not None:
            self._tell(error)

    def _tell(self, end: QueueyError) -> None:
        with self._lock:
            told, self._told = self._told, True
        if not told:
            self._listener.ended(end)

    # Shared by both sides.

    def _take_settled(self) -> Iterator[tuple[RabbitMQDelivery, Settling]]:
        with suppress(IndexError):
            while True:
                yield self._settled.popleft()

    def _fail_settled(self) -> None:
        lost = SettleError("the connection was lost before the broker heard of it")
        for delivery, _ in self._take_settled():
            self._report(delivery, lost)

    def _report(self, delivery: RabbitMQDelivery, error: Exception) -> None:
        if delivery.is_malformed:
            log.error("%s could not be settled: %s", delivery.name, one_line(error))
        else:
            self._listener.settle_failed(delivery, error)


def _caused_by(fault: BaseException, error: E) -> E:
    error.__cause__ = fault
    return error


def _nothing() -> None:
    """Ends a wait of the loop: that it was called is all."""
