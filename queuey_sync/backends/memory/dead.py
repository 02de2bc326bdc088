"""The dead letters of a queue in memory, looked at and taken away; see `DeadQueue` in `base.py`."""

import time
from collections.abc import Iterator, Sequence

from queuey_sync.backends.base import DeadBody
from queuey_sync.backends.memory.store import AT_ONCE, Queue, Store
from queuey_sync.envelope import Envelope
from queuey_sync.errors import QueueyError

_MALFORMED = "malformed envelope"


class MemoryDead:
    """What is dead now.

    Args:
        store: All queues.
        queue: The one that is meant.
    """

    def __init__(self, store: Store, queue: Queue) -> None:
        self._store = store
        self._queue = queue
        self._found: list[tuple[Envelope, str] | bytes] = []
        """What was read, by its number."""

    def read(self) -> Iterator[DeadBody]:
        """Jobs first, then bodies that are none."""
        with self._store.open():
            self._found = [*self._queue.dead, *self._queue.buried]
        for number, one in enumerate(self._found):
            body, reason = (
                (one, _MALFORMED) if isinstance(one, bytes) else (one[0].encode(), one[1])
            )
            yield DeadBody(number, body, reason, None)

    def requeue(self, copies: Sequence[tuple[DeadBody, Envelope]]) -> dict[int, QueueyError]:
        """Place and remove in one step."""
        with self._store.open():
            for body, envelope in copies:
                if self._take(body):
                    self._store.place(envelope, envelope.encode(), AT_ONCE, deferred=False)
        return {}

    def remove(self, bodies: Sequence[DeadBody]) -> None:
        """Delete these."""
        with self._store.open():
            for body in bodies:
                self._take(body)

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def close(self) -> None:
        """Nothing is held."""

    def _take(self, body: DeadBody) -> bool:
        """Whether it was still there."""
        one = self._found[body.number]
        place: list[object] = self._queue.buried if isinstance(one, bytes) else self._queue.dead  # type: ignore[assignment] # either holds what was found there
        at = next((index for index, each in enumerate(place) if each is one), None)
        if at is not None:
            del place[at]
        return at is not None
