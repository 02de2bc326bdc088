"""A TCP proxy that breaks a connection in the ways a network does.

Tests put it between the library and a broker: cut everything, refuse to connect, keep bytes back
for a while, or swallow them in one direction while both sides think that all is well.
"""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_LOOPBACK = "127.0.0.1"
_CHUNK = 65_536


class Proxy:
    """Forwards a port of its own to the broker of `url`, until told otherwise.

    Attributes:
        url: The broker's URL, through the proxy.
        drops_replies: Swallow what the broker says, and leave the connections open.
        drops_requests: Swallow what the client says.
        delay: Seconds that whatever either side says takes.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or _LOOPBACK, parts.port or 5672)
        self._listener = socket.create_server((_LOOPBACK, 0))
        self._port = self._listener.getsockname()[1]
        user = parts.netloc.rpartition("@")[0]
        self.url = parts._replace(netloc=f"{user}@{_LOOPBACK}:{self._port}").geturl()
        self.drops_replies = False
        self.drops_requests = False
        self.delay = 0.0
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        """Both ends of every connection. Guarded by `_lock`."""
        self._threads: list[threading.Thread] = []
        """Guarded by `_lock`."""
        self._start(self._accept, self._listener)

    def __enter__(self) -> Self:
        """Nothing to do: it forwards from its making on."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cut everything and forward nothing more."""
        self.refuse()
        self.thaw()
        for thread in self._threads:
            thread.join(5)

    def cut(self) -> None:
        """Close every connection; new ones are taken."""
        with self._lock:
            doomed, self._sockets = self._sockets, []
        for end in doomed:
            _hang_up(end)

    def refuse(self) -> None:
        """Close every connection, and refuse new ones until `accept`."""
        _hang_up(self._listener)
        self.cut()

    def accept(self) -> None:
        """Take connections again, on the same port."""
        self._listener = socket.create_server((_LOOPBACK, self._port))
        self._start(self._accept, self._listener)

    def freeze(self) -> None:
        """Forward nothing until `thaw`, which forwards it all; nobody is told, as on a bad line."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Go on."""
        self._flowing.set()

    def _start(self, target: object, *arguments: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with self._lock:
                    self._sockets.append(client)
                try:
                    broker = socket.create_connection(self._target)
                except OSError:
                    _hang_up(client)
                    continue
                with self._lock:
                    self._sockets.append(broker)
                self._start(self._forward, client, broker, "drops_requests")
                self._start(self._forward, broker, client, "drops_replies")

    def _forward(self, source: socket.socket, target: socket.socket, drops: str) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if self.delay:
                    time.sleep(self.delay)
                self._flowing.wait()
                if not getattr(self, drops):
                    target.sendall(chunk)
        _hang_up(source)
        _hang_up(target)


def _hang_up(end: socket.socket) -> None:
    # Closing alone does not wake a thread that is blocked on the socket.
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
