"""Which acknowledgements to send for the deliveries of one channel. Pure bookkeeping, no I/O.

A broker numbers the deliveries of a channel 1, 2, 3 … and one ``multiple`` acknowledgement settles
every number up to its own. The ledger turns a batch of settled numbers into the fewest frames,
without ever making a settled delivery wait for a slow one before it. `consumer.py` owns one for
each channel.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Ack(NamedTuple):
    """One acknowledgement to send."""

    tag: int
    multiple: bool


class Ledger:
    """The settled deliveries of one channel. Owner: the consumer thread.

    >>> ledger = Ledger()
    >>> ledger.ack([1, 2, 4])
    [Ack(tag=2, multiple=True), Ack(tag=4, multiple=False)]
    >>> ledger.ack([3])
    [Ack(tag=3, multiple=False)]
    """

    def __init__(self) -> None:
        self._lowest = 1
        """The lowest number that is not settled: everything below is."""
        self._beyond: set[int] = set()
        """Settled numbers above `_lowest`."""

    def ack(self, tags: Iterable[int]) -> list[Ack]:
        """Count these deliveries as acked, and say what to send for them, in this order.

        Every frame names a number that is still unacked at the broker, since an acknowledgement for
        a settled one closes the channel; and a ``multiple`` one covers settled numbers only.
        """
        settled = sorted(tags)
        self._settle(settled)
        prefix = [tag for tag in settled if tag < self._lowest]
        singly = [Ack(tag, multiple=False) for tag in settled if tag > self._lowest]
        if not prefix:
            return singly
        return [Ack(prefix[-1], multiple=len(prefix) > 1), *singly]

    def reject(self, tags: Iterable[int]) -> None:
        """Count these deliveries as given back; their rejects must have been sent already."""
        self._settle(tags)

    def _settle(self, tags: Iterable[int]) -> None:
        self._beyond.update(tags)
        while self._lowest in self._beyond:
            self._beyond.remove(self._lowest)
            self._lowest += 1
