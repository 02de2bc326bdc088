"""What a consumer works with from one transaction to the next: its queues, and what was settled.

Plain data of `consumer.py`, which says who owns it.
"""

from queuey_sync.backends.sqlite import store
from queuey_sync.backends.sqlite.delivery import SQLiteDelivery
from queuey_sync.backends.sqlite.schema import Database, QueueRow
from queuey_sync.queues import QueueConfig

_CHUNK = 256
"""How many jobs of a queue are claimed in one transaction."""


class OpenQueue:
    """A queue of the consumption. Owned by the consumer thread."""

    def __init__(self, config: QueueConfig, row: QueueRow) -> None:
        self.name = config.full_name
        self.row = row
        self.prefetch = config.prefetch
        self.unsettled = 0

    def room(self) -> int:
        """How many jobs may be claimed now."""
        return min(self.prefetch - self.unsettled, _CHUNK) if self.prefetch else _CHUNK


class Settled:
    """What came together for the next transaction."""

    def __init__(self) -> None:
        self.acked: list[SQLiteDelivery] = []
        self.released: list[SQLiteDelivery] = []
        self.untaken: list[SQLiteDelivery] = []
        """Released by a stop."""
        self.replaced: list[SQLiteDelivery] = []
        """Committed already; they only free their places."""

    def accepted(self) -> list[SQLiteDelivery]:
        """Those whose failure has to be told."""
        return self.acked + self.released

    def unwritten(self) -> int:
        """How many are not in the file yet."""
        return len(self.acked) + len(self.released) + len(self.untaken)

    def all(self) -> list[SQLiteDelivery]:
        """All of them."""
        return self.acked + self.released + self.untaken + self.replaced

    def put_back(self, earlier: "Settled") -> None:
        """Keep those for another transaction, since theirs failed."""
        self.acked[:0] = earlier.acked
        self.released[:0] = earlier.released
        self.untaken[:0] = earlier.untaken

    def write(self, db: Database) -> None:
        """Write them to the file."""
        store.finish(db, [delivery.job for delivery in self.acked])
        store.give_back(db, [delivery.job for delivery in self.released + self.untaken])
