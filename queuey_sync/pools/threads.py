"""The thread pool: an attempt runs in the slot's own runner. Nothing in here can stop a handler."""

from queuey_sync.pools.base import Attempt, Result
from queuey_sync.pools.invoke import invoke


class ThreadPool:
    """Runs each attempt in the thread that asks."""

    enforces_time_limit = False

    def run(self, attempt: Attempt) -> Result:
        """Run one attempt to its end."""
        return invoke(attempt)
