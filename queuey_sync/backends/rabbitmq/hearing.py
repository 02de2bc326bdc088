"""Whether the other side of a connection is still there, and how to let go when it is not.

pika looks for a sign of life only now and then, and may need ten seconds more than two heartbeats.
What this reads of pika is private there; were it gone, pika's own look would remain.
"""

import socket
import time
from contextlib import suppress

from pika import BlockingConnection


class Ear:
    """Listens to one connection. Owner: the thread that has the connection.

    Args:
        connection: An open one.
    """

    def __init__(self, connection: BlockingConnection) -> None:
        self._pika = getattr(connection, "_impl", None)
        self._heard = 0
        self._heard_at = time.monotonic()
        heartbeat = getattr(getattr(self._pika, "params", None), "heartbeat", None)
        self._limit = 2 * heartbeat if isinstance(heartbeat, int) else 0

    def silent_for(self) -> float | None:
        """For how many seconds nothing came, if that is too long; asked after each read."""
        heard, now = getattr(self._pika, "bytes_received", 0), time.monotonic()
        if heard != self._heard:
            self._heard, self._heard_at = heard, now
        silence = now - self._heard_at
        return silence if self._limit and silence > self._limit else None

    def cut(self) -> None:
        """End the connection without a word to a side that does not listen."""
        with suppress(AttributeError, OSError):
            getattr(self._pika, "_transport")._sock.shutdown(socket.SHUT_RDWR)  # noqa: B009, SLF001
