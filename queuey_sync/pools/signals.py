"""Signals to children: those of a whole group, which only the parent may heed, and of its end.

A terminal or a supervisor signals a whole group. Children and the forkserver are started with such
signals blocked, install a handler that does nothing, and then let them in. They are never ignored:
that survives ``exec``, and a handler's own subprocess would not hear its ``terminate()``. Standard
library only, for the forkserver imports it first.
"""

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_GROUP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_bare: Any = getattr(signal, "_signal", signal)
"""What `signal` wraps, where it is found: without enums, a look takes a thirtieth of the time."""
_PR_SET_PDEATHSIG = 1


@contextmanager
def group_signals_held() -> Iterator[None]:
    """Hold them back from this thread; what is started meanwhile begins with them blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def outlive_group_signals() -> None:
    """Survive them from now on; called in a process that was started while they were held."""
    for signum in _GROUP_SIGNALS:
        signal.signal(signum, _do_nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _GROUP_SIGNALS)


def outlive_group_signals_again() -> None:
    """Survive them still, whatever a handler has set for its attempt."""
    for signum in _GROUP_SIGNALS:
        if _bare.getsignal(signum) is not _do_nothing:
            outlive_group_signals()


def _do_nothing(_signum: int, _frame: FrameType | None) -> None:
    """Being a function is all: ``exec`` resets it."""


def end_with_the_parent(*, wanted: bool = True) -> None:
    """Have the kernel kill this process when the thread that started it ends, or no longer.

    It does so even while a call into C holds the interpreter's lock.
    """
    with suppress(OSError, AttributeError):  # there is none but on Linux
        signum = signal.SIGKILL if wanted else 0
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signum)
