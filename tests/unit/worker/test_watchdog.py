"""The watchdog's exception meets a handler that has just ended: it must strike nobody else."""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from queuey_sync import JobContext
from queuey_sync.pools.base import SUCCEEDED, Attempt, Result
from queuey_sync.worker import watchdog
from queuey_sync.worker.watchdog import Watchdog

LIMIT = timedelta(milliseconds=20)


@pytest.fixture
def claimed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the watchdog has claimed an attempt, some time before it raises its exception."""
    event = threading.Event()
    ring = watchdog._Alarm.ring

    def ring_late(alarm: Any) -> None:
        event.set()
        time.sleep(0.05)
        ring(alarm)

    monkeypatch.setattr(watchdog._Alarm, "ring", ring_late)
    return event


@pytest.fixture
def dog() -> Iterator[Watchdog]:
    """A watchdog with one slot to watch."""
    errors: list[BaseException] = []
    dog = Watchdog(LIMIT, 1, overdue=lambda _: None, died=errors.append)
    dog.start()
    yield dog
    dog.close()
    assert [] == errors


def test_a_late_soft_limit_stays_in_its_attempt(dog: Watchdog, claimed: threading.Event) -> None:
    """A handler that ended before the exception was raised has it neither here nor later."""
    with dog.soft_limit(LIMIT):
        assert claimed.wait(5)
    _be_struck_if_anything_is_coming()


def test_a_late_hard_limit_stays_in_its_attempt(dog: Watchdog, claimed: threading.Event) -> None:
    """The attempt is settled once, by the watchdog, and its runner goes on unharmed."""
    settled = threading.Event()

    class Slot:
        def run(self, _: Attempt) -> Result:
            assert claimed.wait(5)
            return SUCCEEDED

    slot: Any = Slot()
    handler: Any = None
    attempt = Attempt(handler, b"", JobContext())
    assert dog.run(slot, attempt, LIMIT, settled.set) is None
    _be_struck_if_anything_is_coming()
    assert settled.wait(5)


def _be_struck_if_anything_is_coming() -> None:
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass
