"""The order of publishing: what is sent next, what is unconfirmed, what the broker said. Pure.

`Outbox` holds the messages of all callers, `Declares` the queues to declare. Both belong to the
publisher thread; `link.py` carries out what they say. What callers wait for is in `calls.py`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain, takewhile

from queuey_sync.backends.rabbitmq.publishing.calls import Batch, Call, Declaration, Entry
from queuey_sync.backends.rabbitmq.topology import QueueDeclaration
from queuey_sync.errors import BackendError, PublishRefused, PublishUnroutable, QueueyError

WINDOW = 1_000
"""How many publishes may be unconfirmed at a time; more do not go faster."""


class Outbox:
    """The entries that may be sent, and those that were and are unconfirmed, on one channel.

    A return names a routing key and a message id only, so entries that are equal in both are never
    unconfirmed together: the second waits for its turn. A return comes before the confirm of its
    message; it only marks, and the confirm decides. Owner: the publisher thread.
    """

    def __init__(self, window: int = WINDOW, clock: Callable[[], float] = time.monotonic) -> None:
        self._window = window
        self._clock = clock
        self._waiting: deque[Entry] = deque()
        self._unconfirmed: dict[int, Entry] = {}
        """By delivery tag, oldest first."""
        self._by_key: dict[tuple[str, str | None], Entry] = {}
        """The same entries, by what a return tells."""
        self._turns: dict[tuple[str, str | None], deque[Entry]] = {}
        """Entries that wait for an equal one to be confirmed."""
        self._last_tag = 0
        self._suspects: set[Entry] = set()
        """Entries that were unconfirmed when the broker closed the channel: sent one at a time."""

    def add(self, entries: Iterable[Entry]) -> None:
        """Send these, after all others."""
        self._waiting.extend(entries)

    def take(self) -> Entry | None:
        """The next entry to send, counted as sent; None when there is none, or no room."""
        while self._waiting and self._has_room():
            entry = self._waiting.popleft()
            key = entry.key
            if key in self._by_key:
                self._turns.setdefault(key, deque()).append(entry)
            elif entry.batch.start(entry):
                self._last_tag += 1
                self._unconfirmed[self._last_tag] = self._by_key[key] = entry
                return entry
        return None

    def untake(self, error: QueueyError) -> None:
        """The entry that was taken last could not be put on the wire."""
        entry = self._unconfirmed.pop(self._last_tag)
        self._last_tag -= 1
        self._settled(entry)
        entry.finish(error)

    def returned(self, queue: str, message_id: str | None, reply: str) -> None:
        """The broker sent a message back; its confirm follows."""
        entry = self._by_key.get((queue, message_id))
        if entry is not None:
            entry.reply = reply

    def confirmed(self, tag: int, *, multiple: bool) -> list[Entry]:
        """The broker confirmed.

        Returns:
            The entries for `Declares.ask`: those whose hold queue was missing, and those that came
            so late into theirs that it could expire before they leave it.
        """
        again: list[Entry] = []
        for entry in self._answered(tag, multiple=multiple):
            if entry.hold is not None and entry.reply is None:
                if self._clock() - entry.declared_at <= entry.hold.safe_seconds:
                    entry.finish()
                else:
                    entry.placed = True
                    again.append(entry)
            elif entry.reply is None:
                entry.finish()
            elif entry.hold is not None:
                entry.reply = None
                again.append(entry)
            else:
                entry.finish(
                    PublishUnroutable(
                        f"the publish to `{entry.queue}` was unroutable (routing key"
                        f" `{entry.queue}`): {entry.reply}; the queue does not exist, or no"
                        " longer: declare it with `queuey-sync declare MODULE:APP`, or by starting"
                        " a worker or a producer anew"
                    )
                )
        return again

    def nacked(self, tag: int, *, multiple: bool) -> None:
        """The broker refused."""
        for entry in self._answered(tag, multiple=multiple):
            entry.finish(PublishRefused(f"the publish to `{entry.queue}` was nacked by the broker"))

    def lost(self) -> list[Entry]:
        """The channel is gone: what is unconfirmed goes first on the next one, in the same order.

        Returns:
            The entries whose hold queue must be declared anew, for `Declares.ask`.
        """
        again = list(self._unconfirmed.values())
        for turns in self._turns.values():
            again.extend(turns)
        self._unconfirmed.clear()
        self._by_key.clear()
        self._turns.clear()
        self._last_tag = 0
        for entry in again:
            entry.reply = None
        self._waiting.extendleft(entry for entry in reversed(again) if entry.hold is None)
        return [entry for entry in again if entry.hold is not None]

    def closed_by_broker(self, reason: str) -> list[Entry]:
        """The broker closed the channel over one of the unconfirmed entries: find out which.

        The answer does not name it. So all are sent again one at a time, and the one that is alone
        when the channel closes is the one that the broker refuses.
        """
        if len(self._unconfirmed) == 1:
            (entry,) = self._unconfirmed.values()
            entry.finish(
                PublishRefused(f"the broker refused the publish to `{entry.queue}`: {reason}")
            )
        else:
            self._suspects.update(self._unconfirmed.values())
        return self.lost()

    def awaits_confirms(self) -> bool:
        """Whether somebody still waits for the answer to what was sent."""
        return any(entry.live for entry in self._unconfirmed.values())

    def has_live(self) -> bool:
        """Whether somebody still waits for anything in here."""
        return any(entry.live for entry in self._all())

    def calls(self) -> set[Batch]:
        """Every call that somebody still waits for."""
        return {entry.batch for entry in self._all() if entry.live}

    def _all(self) -> Iterable[Entry]:
        return chain(self._unconfirmed.values(), self._waiting, *self._turns.values())

    def _has_room(self) -> bool:
        if self._suspects:
            self._suspects = {entry for entry in self._suspects if entry.live}
        window = 1 if self._suspects else self._window
        if len(self._unconfirmed) >= window and not next(iter(self._unconfirmed.values())).live:
            self._drop_unanswered()
        return len(self._unconfirmed) < window

    def _drop_unanswered(self) -> None:
        """Make room where callers gave up and the broker never answered.

        A queue that lost its leader confirms nothing; it may not keep out the publishes to others.
        """
        for tag, entry in list(self._unconfirmed.items()):
            if not entry.live:
                del self._unconfirmed[tag]
                self._settled(entry)

    def _answered(self, tag: int, *, multiple: bool) -> list[Entry]:
        if multiple:
            tags = list(takewhile(lambda known: known <= tag, self._unconfirmed))
        else:
            tags = [tag] if tag in self._unconfirmed else []
        entries = [self._unconfirmed.pop(known) for known in tags]
        for entry in entries:
            self._settled(entry)
        return entries

    def _settled(self, entry: Entry) -> None:
        self._suspects.discard(entry)
        key = entry.key
        self._by_key.pop(key, None)
        turns = self._turns.get(key)
        if turns:
            self._waiting.appendleft(turns.popleft())
        if turns is not None and not turns:
            del self._turns[key]


class Declares:
    """The queues to declare, one at a time, so that a refusal is known to belong to the last one.

    Declarations that callers wait for go first, then hold queues. A hold queue is declared before
    each publish, because that restarts its expiry, and one declaration serves every entry that
    asked before it was sent. Owner: the publisher thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent_at = 0.0
        """When the declaration on its way was sent."""
        self._calls: deque[Declaration] = deque()
        self._holds: dict[str, list[Entry]] = {}
        """Who asked for which hold queue, oldest first."""
        self._current: Declaration | list[Entry] | None = None
        """For whom a declaration is on its way."""

    def add(self, call: Declaration, *, first: bool = False) -> None:
        """Declare these queues."""
        if first:
            self._calls.appendleft(call)
        else:
            self._calls.append(call)

    def ask(self, entries: Iterable[Entry]) -> None:
        """Declare the hold queue of each entry before it may be sent."""
        for entry in entries:
            if entry.hold is not None:
                self._holds.setdefault(entry.hold.name, []).append(entry)

    def take(self) -> QueueDeclaration | None:
        """The next queue to declare; None when there is none, or one is on its way."""
        if self._current is not None:
            return None
        self._sent_at = self._clock()
        while self._calls:
            call = self._calls[0]
            if not call.withdrawn and not call.finished:
                self._current = call
                return call.queues[call.landed]
            self._calls.popleft()
        while self._holds:
            name = next(iter(self._holds))
            entries = [entry for entry in self._holds.pop(name) if entry.live]
            if entries:
                self._current = entries
                return entries[0].hold
        return None

    def landed(self) -> list[Entry]:
        """The queue exists; the entries that are to be published into it, for `Outbox.add`."""
        current, self._current = self._current, None
        if isinstance(current, Declaration):
            current.one_landed()
            return []
        return [entry for entry in current or () if not self._was_kept(entry)]

    def _was_kept(self, entry: Entry) -> bool:
        """Whether a message that came late into its hold queue is safe there after all.

        The queue expires after twice its time. Declared again before that, it has outlived all that
        is in it; else it may have gone with the message, which is then published again.
        """
        before, entry.declared_at = entry.declared_at, self._sent_at
        placed, entry.placed = entry.placed, False
        if entry.hold is None or not placed:
            return False
        if self._clock() - before >= 2 * entry.hold.safe_seconds:
            return False
        entry.finish()
        return True

    def refused(self, reason: str) -> None:
        """The broker refused the queue."""
        current, self._current = self._current, None
        if isinstance(current, Declaration):
            text = _refusal(current.queues[current.landed], reason)
            current.abandon(lambda: BackendError(text))
        for entry in current if isinstance(current, list) else ():
            if entry.hold is not None:
                entry.finish(BackendError(_refusal(entry.hold, reason)))

    def lost(self) -> None:
        """The channel is gone: what was on its way is asked for again."""
        current, self._current = self._current, None
        if isinstance(current, list):
            self.ask(current)

    def calls(self) -> set[Call]:
        """Every call that somebody still waits for."""
        current = self._current if isinstance(self._current, list) else ()
        asked = chain(current, *self._holds.values())
        declarations = {
            call
            for call in self._calls
            if call.awaited and not call.withdrawn and not call.finished
        }
        return {*declarations, *(entry.batch for entry in asked if entry.live)}


def _refusal(queue: QueueDeclaration, reason: str) -> str:
    return f"declaring `{queue.name}` was refused: {reason}; {queue.wanted}"
