"""Signals that a terminal or a supervisor sends to a whole group: only the parent may heed them.

Children and the forkserver are started with them blocked, install a handler that does nothing, and
then let them in. They are never ignored: that survives ``exec``, and a handler's own subprocess
would not hear its ``terminate()``. Standard library only, for the forkserver imports it first.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_GROUP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def group_signals_held() -> Iterator[None]:
    """Hold them back from this thread; what is started meanwhile begins with them blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def outlive_group_signals() -> None:
    """Survive them from now on, in a process that was started while they were held."""
    for signum in _GROUP_SIGNALS:
        signal.signal(signum, _do_nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _GROUP_SIGNALS)


def _do_nothing(_signum: int, _frame: FrameType | None) -> None:
    """Being a function is all: ``exec`` resets it."""
