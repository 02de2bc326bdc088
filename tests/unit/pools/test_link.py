"""The line between a runner and its child: whole messages, the child's end and the deadline."""

import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from queuey_sync.pools.link import ChildEnd, ChildGone, Link

_LARGE = b"x" * 5_000_000  # more than the buffers of a socket hold


@dataclass
class Pair:
    """A link, the socket at its other end, and a child that is made up."""

    link: Link
    near: socket.socket
    far: socket.socket
    sentinel: int
    """Closing it is the child's end."""
    is_alive: Callable[[], bool] = lambda: True


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both ends of a line."""
    near, far = socket.socketpair()
    sentinel, child = os.pipe()

    def alive() -> bool:
        return line.is_alive()

    link = Link(near, sentinel, alive)
    line = Pair(link, near, far, child)
    yield line
    near.close()
    far.close()
    os.close(sentinel)
    if line.sentinel:
        os.close(line.sentinel)


def _soon() -> float:
    return time.monotonic() + 0.1


@pytest.mark.parametrize("text", [b"", b"small", _LARGE], ids=["empty", "small", "large"])
def test_messages_cross_whole_in_both_directions(pair: Pair, text: bytes) -> None:
    """What is sent comes back as it was, whatever its size, one after the other."""

    def echo() -> None:
        end = ChildEnd(pair.far)
        for _ in range(3):
            end.send(pickle.dumps(end.receive()))

    child = threading.Thread(target=echo)
    child.start()
    for number in range(3):
        pair.link.send((number, text), None)
        assert (number, text) == pickle.loads(pair.link.receive(time.monotonic() + 20))
    child.join()


def test_the_child_sees_the_end_of_the_line(pair: Pair) -> None:
    """A closed line is no message: the child may leave."""
    pair.near.close()
    with pytest.raises(EOFError):
        ChildEnd(pair.far).receive()


@pytest.mark.parametrize("sent", [b"", b"queuey\r\n\0\0\0\0\0\0\0\x09four"], ids=["no", "half a"])
def test_a_deadline_ends_the_wait_for_a_message(pair: Pair, sent: bytes) -> None:
    """Also in the middle of one."""
    pair.far.sendall(sent)
    with pytest.raises(TimeoutError):
        pair.link.receive(_soon())


def test_a_deadline_ends_the_sending(pair: Pair) -> None:
    """A child that does not read does not hold its runner."""
    with pytest.raises(TimeoutError):
        pair.link.send(_LARGE, _soon())


@pytest.mark.parametrize("sign", ["sentinel", "look"])
@pytest.mark.parametrize("sent", [b"", b"queuey\r\n\0\0\0\0\0\0\0\x09four"], ids=["no", "half a"])
def test_a_child_that_dies_ends_the_wait(pair: Pair, sent: bytes, sign: str) -> None:
    """The sentinel says so, or a look, where another process holds the line and the sentinel."""
    pair.far.sendall(sent)
    if sign == "sentinel":
        os.close(pair.sentinel)
        pair.sentinel = 0
    else:
        pair.is_alive = lambda: False
    with pytest.raises(ChildGone):
        pair.link.receive(None)
    with pytest.raises(ChildGone):
        pair.link.send(_LARGE, None)


def test_what_a_child_sent_before_it_died_counts(pair: Pair) -> None:
    """It did its work."""
    ChildEnd(pair.far).send(b"done")
    os.close(pair.sentinel)
    pair.sentinel = 0
    assert b"done" == pair.link.receive(None)


def test_a_message_in_the_moment_of_death_counts(pair: Pair) -> None:
    """The last look is at the line: the message may have come between the two looks before."""

    def alive() -> bool:
        ChildEnd(pair.far).send(b"done")
        return False

    pair.is_alive = alive
    assert b"done" == pair.link.receive(None)


@pytest.mark.parametrize("how", ["closed", "junk"])
def test_a_line_that_cannot_be_used(pair: Pair, how: str) -> None:
    """The child has closed it, or a handler wrote into it: no result will come."""
    if how == "closed":
        pair.far.close()
    else:
        pair.far.sendall(b"a line of somebody else's log\n")
    with pytest.raises(ChildGone):
        pair.link.receive(None)
