"""One connection for publishing: between pika's callbacks and the pure bookkeeping.

A link has two channels: one publishes, with confirms and mandatory, and one declares, since a
refused declaration closes the channel that it ran on. It lives from one dial to the loss of the
connection; `publisher.py` dials the next. It decides nothing: that is in `outbox.py`.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Concatenate, ParamSpec

from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.channel import Channel
from pika.connection import Parameters
from pika.frame import Method
from pika.spec import Basic, BasicProperties

from queuey_sync.backends.rabbitmq.dialling import DialFailed, address, fault_text, quieten_pika
from queuey_sync.backends.rabbitmq.publishing.calls import Declaration
from queuey_sync.backends.rabbitmq.publishing.outbox import Declares, Outbox
from queuey_sync.errors import BackendError
from queuey_sync.observe.escaping import one_line

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 0.5
"""How long a broker may take to agree to the end of a connection on which nothing is under way."""

_P = ParamSpec("_P")


def _guarded(
    method: "Callable[Concatenate[Link, _P], None]",
) -> "Callable[Concatenate[Link, _P], None]":
    """Keep an exception from pika, which takes it for a lost connection, to be dialled again."""

    def guarded(link: "Link", /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(link, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - reported, whatever it is
            link.crashed(error)

    return guarded


class Link:
    """One connection and its two channels. Everything but `wake` belongs to the publisher thread.

    Args:
        parameters: Where to, and as whom.
        outbox: What to publish.
        declares: What to declare.
        collect: Fetches what callers have added since.
        may_close: Tells whether the link is to be closed now.
        replay: Queues to declare again before anything is published.
    """

    def __init__(
        self,
        parameters: Parameters,
        outbox: Outbox,
        declares: Declares,
        *,
        collect: Callable[[], None],
        may_close: Callable[[], bool],
        replay: Declaration | None,
    ) -> None:
        self.crash: Exception | None = None
        """The fault of ours that ended the link."""
        self.fault: str | None = None
        """Why it ended; None while it lives."""
        self.address = address(parameters)
        self._parameters = parameters
        self._outbox = outbox
        self._declares = declares
        self._collect = collect
        self._may_close = may_close
        self._replay = replay
        self._loop = IOLoop()
        self._connection: SelectConnection | None = None
        self._publishing: Channel | None = None
        """The channel that publishes, while it is open."""
        self._nacked = False
        """The channel that publishes is to be replaced.

        RabbitMQ has a client of a quorum queue in each channel. One that meets the queue first
        while its leader is gone refuses all that is published to it there, also when there is a new
        leader.
        """
        self._declaring: Channel | None = None
        """The channel that declares, while it is open."""
        self._ready = False
        self._blocked = False
        """The broker reads nothing that we send, for lack of memory or disk."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is up, as far as is known. From any thread."""
        connection = self._connection
        return self._ready and self.fault is None and connection is not None and connection.is_open

    @property
    def is_blocked(self) -> bool:
        """Whether the broker has said that it takes no publishes. From any thread."""
        return self._blocked

    def wake(self) -> None:
        """Look for new work, soon. From any thread."""
        self._loop.add_callback_threadsafe(self._work)

    def open(self, limit: timedelta) -> None:
        """Dial, and return when both channels are ready.

        Raises:
            DialFailed: They are not.
        """
        quieten_pika()
        overdue = self._loop.call_later(limit.total_seconds(), self._overdue)
        self._connection = SelectConnection(
            self._parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_end,
            on_close_callback=self._on_end,
            custom_ioloop=self._loop,
        )
        self._connection.add_on_connection_blocked_callback(self._on_blocked)
        self._connection.add_on_connection_unblocked_callback(self._on_unblocked)
        self._loop.start()
        self._loop.remove_timeout(overdue)
        if not self._ready:
            raise DialFailed(f"{self.address}: {self.fault}")

    def serve(self) -> None:
        """Publish and declare until the connection is gone, for whatever reason."""
        if self.fault is None:
            self._work()
        if self.fault is None:
            self._loop.start()

    def discard(self) -> None:
        """Let go of everything that the link holds."""
        if self._replay is not None:
            self._replay.withdrawn = True
        if self._connection is not None and not self._connection.is_closed:
            self.close_socket()
        self._loop.close()

    def close_socket(self) -> None:
        """Close the socket without a word to the broker; after a fork, the child's copy of it."""
        # pika has no public way; without this the socket stays open until the collector runs.
        with suppress(Exception):
            transport = getattr(self._connection, "_transport", None)
            getattr(transport, "_sock").close()  # noqa: B009 - private, so not typed

    def crashed(self, error: Exception) -> None:
        """A callback of ours failed: end the link, since nothing on it can be relied on."""
        log.error("publishing to %s failed", self.address, exc_info=error)
        self.crash = error
        self._end(f"internal error: {error!r}")

    def _end(self, fault: str) -> None:
        if self.fault is None:
            self.fault = fault
        self._loop.stop()

    def _overdue(self) -> None:
        self._end("no answer in time")

    @_guarded
    def _work(self) -> None:
        self._collect()
        self._pump()

    def _pump(self) -> None:
        """Do whatever can be done now."""
        if self._ready and self.is_open and not self._blocked:
            self._declare()
            if self._replay is None or self._replay.finished:
                self._publish()
        if self._may_close():
            self._close()

    def _declare(self) -> None:
        if self._declaring is None:
            return
        queue = self._declares.take()
        if queue is not None:
            self._declaring.queue_declare(
                queue.name,
                passive=queue.passive,
                durable=queue.durable,
                arguments=dict(queue.arguments),
                callback=self._on_declared,
            )

    def _publish(self) -> None:
        channel = self._publishing
        if channel is not None and self._nacked:
            if not self._outbox.awaits_confirms():
                self._publishing = None
                channel.close()
            return
        while channel is not None and (entry := self._outbox.take()) is not None:
            try:
                channel.basic_publish("", entry.queue, entry.body, entry.properties, mandatory=True)
            except Exception as error:  # noqa: BLE001 - the error of one message, whatever it is
                # pika encodes all of a message before it sends any, so nothing has been sent.
                self._outbox.untake(
                    BackendError(f"the publish to `{entry.queue}` cannot be sent: {error!r}")
                )

    def _close(self) -> None:
        if not self._ready:
            # pika takes the end of a connection that is not open yet for a fault of its own.
            self._end("closed before it was open")
            return
        connection = self._connection
        if connection is None or connection.is_closing or connection.is_closed:
            return
        self._loop.call_later(_CLOSE_SECONDS, self._overdue)
        connection.close()

    @_guarded
    def _on_open(self, connection: SelectConnection) -> None:
        self._open_publishing(connection)
        self._open_declaring(connection)

    @_guarded
    def _on_end(self, _connection: SelectConnection, reason: BaseException | None) -> None:
        self._end(fault_text(reason, self._parameters))

    @_guarded
    def _on_blocked(self, _connection: object, _frame: object) -> None:
        log.warning("%s takes no publishes: low on memory or disk", self.address)
        self._blocked = True

    @_guarded
    def _on_unblocked(self, _connection: object, _frame: object) -> None:
        log.warning("%s takes publishes again", self.address)
        self._blocked = False
        self._pump()

    def _channel_is_up(self) -> None:
        if self._publishing is None or self._declaring is None:
            return
        if self._ready:
            self._pump()
        else:
            self._ready = True
            self._loop.stop()

    # The channel that publishes

    def _open_publishing(self, connection: SelectConnection) -> None:
        connection.channel(on_open_callback=self._on_publishing_opened)

    @_guarded
    def _on_publishing_opened(self, channel: Channel) -> None:
        channel.add_on_close_callback(self._on_publishing_closed)
        channel.add_on_return_callback(self._on_returned)
        channel.confirm_delivery(
            self._on_answered, callback=lambda _frame: self._on_confirming(channel)
        )

    @_guarded
    def _on_confirming(self, channel: Channel) -> None:
        self._publishing = channel
        self._channel_is_up()

    @_guarded
    def _on_returned(
        self, _channel: Channel, method: Basic.Return, properties: BasicProperties, _body: bytes
    ) -> None:
        self._outbox.returned(
            method.routing_key or "",
            properties.message_id,
            f"{method.reply_code} {method.reply_text}",
        )

    @_guarded
    def _on_answered(self, frame: "Method[Basic.Ack | Basic.Nack]") -> None:
        answer = frame.method
        if isinstance(answer, Basic.Ack):
            again = self._outbox.confirmed(answer.delivery_tag, multiple=answer.multiple)
            self._declares.ask(again)
        else:
            self._outbox.nacked(answer.delivery_tag, multiple=answer.multiple)
            self._nacked = True
        self._pump()

    @_guarded
    def _on_publishing_closed(self, _channel: Channel, reason: Exception) -> None:
        self._publishing, self._nacked = None, False
        if self._connection is not None and self._connection.is_open:
            self._declares.ask(self._outbox.closed_by_broker(fault_text(reason, self._parameters)))
            self._open_publishing(self._connection)

    # The channel that declares

    def _open_declaring(self, connection: SelectConnection) -> None:
        connection.channel(on_open_callback=self._on_declaring_opened)

    @_guarded
    def _on_declaring_opened(self, channel: Channel) -> None:
        channel.add_on_close_callback(self._on_declaring_closed)
        self._declaring = channel
        self._channel_is_up()

    @_guarded
    def _on_declared(self, _frame: object) -> None:
        self._outbox.add(self._declares.landed())
        self._pump()

    @_guarded
    def _on_declaring_closed(self, _channel: Channel, reason: Exception) -> None:
        self._declaring = None
        if self._connection is not None and self._connection.is_open:
            self._declares.refused(fault_text(reason, self._parameters))
            if self._replay is not None and self._replay.error is not None:
                log.error("after a new connection: %s", one_line(self._replay.error))
            self._open_declaring(self._connection)
