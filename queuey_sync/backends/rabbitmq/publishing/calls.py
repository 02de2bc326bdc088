"""Calls: what a caller's thread waits for while the publisher thread works on it. Pure, no I/O.

A `Batch` is messages to publish, a `Declaration` queues to declare. Both race with the caller's
time limit, so each has a lock of its own: what was withdrawn is never sent later. `outbox.py` keeps
them in order; `publisher.py` waits on them.
"""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import pika

from queuey_sync.backends.rabbitmq.topology import QueueDeclaration
from queuey_sync.errors import PublishUnconfirmed, QueueyError


class Call:
    """What one caller waits for until its time limit, while the publisher thread works on it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards what caller and publisher thread race for: `withdrawn` and the results."""
        self._done = threading.Event()
        self.withdrawn = False
        """The caller has gone: nothing of this call may start any more. Guarded by `_lock`."""

    @property
    def finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self._done.is_set()

    def wait(self, limit: timedelta) -> None:
        """Wait until all is done, or nothing happened for `limit`; then withdraw what is left."""
        seconds = limit.total_seconds()
        try:
            progress = self._progress()
            while not self._done.wait(seconds):
                before, progress = progress, self._progress()
                if progress == before:
                    break
        finally:
            with self._lock:
                self.withdrawn = True

    def abandon(self, make_error: Callable[[], QueueyError]) -> None:
        """Give up on what is unfinished; every caller gets an error of its own to raise."""
        raise NotImplementedError

    def _progress(self) -> int:
        raise NotImplementedError


class Declaration(Call):
    """Queues to declare, one after the other."""

    def __init__(self, queues: Sequence[QueueDeclaration], *, awaited: bool = True) -> None:
        super().__init__()
        self.queues = queues
        self.awaited = awaited
        """Whether a caller waits; nobody does when lost queues are declared again."""
        self.landed = 0
        """How many of `queues` exist. Written by the publisher thread."""
        self.error: QueueyError | None = None
        """Why it ended early. Guarded by `_lock`."""

    def one_landed(self) -> None:
        """The next queue exists."""
        self.landed += 1
        if self.landed == len(self.queues):
            self._done.set()

    def abandon(self, make_error: Callable[[], QueueyError]) -> None:
        """End with this error."""
        with self._lock:
            if not self.withdrawn and not self._done.is_set():
                self.error = make_error()
        self._done.set()

    def _progress(self) -> int:
        return self.landed


class Entry:
    """One message to publish, and how far it got."""

    __slots__ = (
        "batch",
        "body",
        "declared_at",
        "finished",
        "hold",
        "index",
        "placed",
        "properties",
        "queue",
        "reply",
        "sent",
    )

    def __init__(
        self,
        queue: str,
        body: bytes,
        properties: pika.BasicProperties,
        hold: QueueDeclaration | None = None,
    ) -> None:
        self.queue = queue
        """The routing key."""
        self.body = body
        self.properties = properties
        self.hold = hold
        """To be declared before each sending."""
        self.batch: Batch
        self.index = 0
        self.sent = False
        """Whether it has ever been on the wire. Guarded by the batch's lock."""
        self.finished = False
        """Guarded by the batch's lock."""
        self.declared_at = 0.0
        """When the declaration of `hold` was sent; owner: the publisher thread."""
        self.placed = False
        """Whether it is confirmed, but perhaps too late for `hold`; owner: the publisher thread."""
        self.reply: str | None = None
        """What a return said; owner: the publisher thread."""

    @property
    def key(self) -> tuple[str, str | None]:
        """What a return is credited by: all that the broker tells about the message."""
        return self.queue, self.properties.message_id

    @property
    def live(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.batch.withdrawn and not self.finished

    def finish(self, error: QueueyError | None = None) -> None:
        """The broker has it, or it failed with `error`."""
        self.batch.finish(self, error)


class Batch(Call):
    """Messages that one caller publishes together and waits for together."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        self.entries = entries
        self.failures: dict[int, QueueyError] = {}
        """The error of each entry that failed. Guarded by `_lock`."""
        self._unfinished = len(entries)
        """Guarded by `_lock`."""
        for index, entry in enumerate(entries):
            entry.batch, entry.index = self, index

    def start(self, entry: Entry) -> bool:
        """An entry is about to be sent; False when nobody waits for it any more."""
        with self._lock:
            if self.withdrawn or entry.finished:
                return False
            entry.sent = True
            return True

    def finish(self, entry: Entry, error: QueueyError | None) -> None:
        """Settle the fate of one entry, once."""
        with self._lock:
            if self.withdrawn or entry.finished:
                return
            entry.finished = True
            if error is not None:
                self.failures[entry.index] = error
            self._unfinished -= 1
            if not self._unfinished:
                self._done.set()

    def abandon(self, make_error: Callable[[], QueueyError]) -> None:
        """Fail every unfinished entry: with this error, or as unknown when it has been sent."""
        for entry in self.entries:
            if not entry.finished:
                error = make_error()
                entry.finish(_unknown(entry, str(error)) if entry.sent else error)

    def outcome(self, reason: str) -> dict[int, QueueyError]:
        """The error of each entry that was not confirmed, for `reason` where nothing else is known.

        For the caller, after `wait`.
        """
        for entry in self.entries if self._unfinished else ():
            if not entry.finished:
                self.failures[entry.index] = (
                    _unknown(entry, reason)
                    if entry.sent
                    else PublishUnconfirmed(
                        f"the publish to `{entry.queue}` was never sent: {reason}",
                        maybe_published=False,
                    )
                )
        return self.failures

    def _progress(self) -> int:
        return self._unfinished


def _unknown(entry: Entry, reason: str) -> PublishUnconfirmed:
    return PublishUnconfirmed(
        f"the publish to `{entry.queue}` was sent and its fate is unknown: {reason}",
        maybe_published=True,
    )
