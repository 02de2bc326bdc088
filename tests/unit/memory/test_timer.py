"""Tests of time in the memory backend: the timer thread of real time, and the clock of tests."""

import threading
import time
from datetime import timedelta

import pytest

from queuey_sync.backends.base import Inbox
from queuey_sync.backends.memory.backend import MemoryBackend
from queuey_sync.envelope import Envelope
from queuey_sync.queues import QueueConfig
from queuey_sync.testing import ManualClock
from tests.contract.adapters import Listener
from tests.support.waiting import eventually


def envelope(number: int = 0) -> Envelope:
    """A fresh envelope, told from others by its number."""
    return Envelope.new("shop.Charge", "shop.orders", b'{"n":%d}' % number)


def test_real_time() -> None:
    """Without a clock delays are real, in order, never early, and the timer thread ends."""
    backend = MemoryBackend()
    inbox = Inbox()
    backend.consume([QueueConfig("shop.orders")], inbox, Listener())
    late, soon = envelope(1), envelope(2)
    started = time.monotonic()
    backend.publish(late, timedelta(milliseconds=120))
    backend.publish(soon, timedelta(milliseconds=30))
    for sent, seconds in ((soon, 0.03), (late, 0.12)):
        delivery = inbox.get(timeout=5)
        assert delivery is not None
        assert time.monotonic() - started >= seconds
        assert sent == delivery.envelope
    eventually(lambda: "queuey-memory-timer" not in {each.name for each in threading.enumerate()})
    backend.defer(envelope(3), timedelta(milliseconds=1))
    assert inbox.get(timeout=5)


def test_real_close_ends_the_timer() -> None:
    """I7: closing a backend in real time drops what waits, and leaves no thread."""
    backend = MemoryBackend()
    backend.defer(envelope(), timedelta.max)
    assert backend.deferred("shop.orders") == 1
    backend.close()
    assert (backend.deferred("shop.orders"), backend.pending("shop.orders")) == (0, 0)
    eventually(lambda: "queuey-memory-timer" not in {each.name for each in threading.enumerate()})


def test_manual_clock_order() -> None:
    """Callbacks run in the order of their times, also those scheduled while time passes."""
    clock = ManualClock()
    seen: list[str] = []

    def first() -> None:
        seen.append("first")
        clock.call_later(timedelta(seconds=1), lambda: seen.append("nested"))

    clock.call_later(timedelta(seconds=3), lambda: seen.append("last"))
    clock.call_later(timedelta(seconds=1), first)
    clock.call_later(timedelta(seconds=1), lambda: seen.append("same time"))
    clock.advance("999ms")
    assert seen == []
    clock.advance(10)
    assert seen == ["first", "same time", "nested", "last"]
    with pytest.raises(ValueError, match="negative"):
        clock.advance(-1)
