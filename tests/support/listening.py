"""A listener for tests that look at a backend only."""

from queuey_sync.backends.base import Delivery
from queuey_sync.errors import QueueyError


class Deaf:
    """Hears nothing of a consumption."""

    def ended(self, error: QueueyError) -> None:
        """Ignore it."""

    def redelivers(self, queue: str) -> None:
        """Ignore it."""

    def settle_failed(self, delivery: Delivery, error: Exception) -> None:
        """Ignore it."""
