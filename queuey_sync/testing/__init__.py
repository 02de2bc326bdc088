"""What the tests of a user's jobs need; nothing in the library imports it."""

from queuey_sync.testing.clock import ManualClock

__all__ = ["ManualClock"]
