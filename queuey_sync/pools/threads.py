"""The thread pool: an attempt runs in the slot's own runner. Nothing in here can stop a handler."""

from typing import Any

from queuey_sync.handlers import Handlers
from queuey_sync.pools.base import Attempt, Result
from queuey_sync.pools.invoke import invoke, run_on_end, run_on_start


class ThreadPool:
    """Runs each attempt in the thread that asks. It is its own slot, since nothing is kept."""

    unit = "thread"
    enforces_limits = False

    def __init__(self, handlers: Handlers[Any]) -> None:
        self._handlers = handlers

    def default_concurrency(self, prefetch: int) -> int:
        """As many threads as deliveries: most of them wait."""
        return prefetch

    def start(self) -> None:
        """Call what the app registered with ``on_start``."""
        run_on_start(self._handlers)

    def slot(self) -> "ThreadPool":
        """The pool itself."""
        return self

    def stop(self) -> None:
        """Nothing to do: the handlers share the worker's own watcher."""

    def abandon(self) -> bool:
        """Nothing can be done: a thread cannot be ended."""
        return False

    def ready(self) -> None:
        """Always."""

    def run(self, attempt: Attempt) -> Result:
        """Run one attempt to its end."""
        return invoke(attempt, self._handlers.arounds)

    def close(self) -> None:
        """Call what is to run at the end of the runner's thread."""
        run_on_end(self._handlers)
