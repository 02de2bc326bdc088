"""What the tests of the bookkeeping of publishing share: entries and batches by the letter."""

from collections.abc import Sequence
from datetime import timedelta

import pika

from queuey_sync.backends.rabbitmq.publishing.calls import Batch, Entry
from queuey_sync.backends.rabbitmq.publishing.outbox import Outbox
from queuey_sync.backends.rabbitmq.topology import QueueDeclaration
from queuey_sync.errors import QueueyError

AT_ONCE = timedelta(0)


def entry(message_id: str, queue: str = "q", hold: QueueDeclaration | None = None) -> Entry:
    """An entry, told from others by its message id."""
    return Entry(queue, b"{}", pika.BasicProperties(message_id=message_id), hold)


def batch_of(ids: str, queue: str = "q", hold: QueueDeclaration | None = None) -> Batch:
    """A batch with one entry for each letter."""
    return Batch([entry(message_id, queue, hold) for message_id in ids])


def ids(entries: Sequence[Entry]) -> str:
    """The message ids of entries, in order."""
    return "".join(str(entry.properties.message_id) for entry in entries)


def take_all(outbox: Outbox) -> str:
    """Take whatever may be sent now; returns the message ids."""
    taken = []
    while (entry := outbox.take()) is not None:
        taken.append(entry)
    return ids(taken)


def outcome(batch: Batch) -> dict[int, QueueyError]:
    """What the caller of a batch is told at its limit."""
    batch.wait(AT_ONCE)
    return batch.outcome("no confirm")
