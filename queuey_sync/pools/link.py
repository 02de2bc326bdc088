"""The line between a runner and its child: one message there, one back, each whole or not at all.

`Link` is the runner's end. It waits no longer than the child lives or a deadline lasts, also in the
middle of a message. `ChildEnd` just blocks: a child without a parent is killed. What the messages
say is in `child_process.py` and `child.py`.
"""

import pickle
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

_HEADER = struct.Struct("!8sQ")
"""A mark, which tells a message from what a handler wrote where it should not, and its length."""
_MARK = b"queuey\r\n"
_CHUNK = 1 << 16
_LOOK = 1.0
"""Seconds between two looks at the child: a process that it forked may hold its sentinel open."""


class ChildGone(Exception):
    """The child is dead, has closed its end, or talks no sense."""


class Link:
    """The runner's end. Owner: that runner's thread.

    Args:
        near: Connected to the socket that the child was given.
        sentinel: A descriptor that becomes readable when the child ends.
        alive: Says whether the child lives, where the sentinel has not said so.
    """

    def __init__(self, near: socket.socket, sentinel: int, alive: Callable[[], bool]) -> None:
        near.settimeout(0)
        self._socket = near
        self._alive = alive
        self._poll = select.poll()
        self._poll.register(sentinel, select.POLLIN)

    def send(self, message: object, deadline: float | None) -> None:
        """Send it, pickled.

        Raises:
            ChildGone: Nobody can take it.
            TimeoutError: `deadline`, on the monotonic clock, has passed.
        """
        rest = memoryview(pickle.dumps(message))
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)
            except OSError:
                raise ChildGone from None

    def receive(self, deadline: float | None) -> bytes:
        """What the child sent, still pickled.

        Raises:
            ChildGone: There is no whole message, and there will be none.
            TimeoutError: `deadline`, on the monotonic clock, has passed.
        """
        data = bytearray()
        size = _HEADER.size
        while len(data) < size:
            self._wait(select.POLLIN, deadline)
            try:
                chunk = self._socket.recv(_CHUNK)
            except OSError:
                raise ChildGone from None
            if not chunk:
                raise ChildGone
            data += chunk
            if len(data) >= _HEADER.size:
                mark, length = _HEADER.unpack_from(data)
                if mark != _MARK:
                    raise ChildGone
                size = _HEADER.size + length
        return bytes(data[_HEADER.size :])

    def _wait(self, event: int, deadline: float | None) -> None:
        self._poll.register(self._socket, event)
        alive = True
        while True:
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            ready = self._poll.poll(max(left, 0) * 1000 if alive else 0)
            if any(descriptor == self._socket.fileno() for descriptor, _ in ready):
                return
            if not alive:
                raise ChildGone
            # A dead one may have sent something before: there is one more look at the line.
            alive = not ready and self._alive()
            if alive and left <= 0:
                raise TimeoutError


class ChildEnd:
    """The child's end. Owner: its main thread."""

    def __init__(self, far: socket.socket) -> None:
        self._stream = far.makefile("rwb")

    def receive(self) -> Any:  # noqa: ANN401 - whatever was sent
        """The next message; raises `EOFError` when the runner has closed its end."""
        return pickle.load(self._stream)  # noqa: S301 - our parent wrote it

    def send(self, message: bytes) -> None:
        """Send what was pickled."""
        self._stream.write(_HEADER.pack(_MARK, len(message)) + message)
        self._stream.flush()
