"""What signals do to a command: the first one stops it in good order, a second one ends it now.

SIGUSR1 stops nothing: it asks a worker what it is doing.

Standard library only, and quick to import, because the handlers must be there within milliseconds.
It knows no worker: `worker.py` says how to stop one. A handler runs on the main thread, between two
of its bytecodes, whatever that thread holds; so nothing here takes a lock, logging included.
"""

import _thread
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FLUSH_SECONDS = 1.0
_SHOW_CURSOR = b"\x1b[?25h"


class Signals:
    """The signals of this process, from `listen` on. The main thread owns it.

    While there is no work to finish, a first signal ends the process from inside the handler. An
    exception would run what ``atexit`` holds, but the user's code that is being imported may catch
    it, and Python drops it wherever a callback happens to run.

    Args:
        stop_is_success: Whether the exit code of a command that a first signal ends is 0, as befits
            one that runs until it is stopped, or 128 plus the signal's number. The command may
            change it.
    """

    def __init__(self, *, stop_is_success: bool) -> None:
        self.stop_is_success = stop_is_success
        self._received = False
        self._stop: Callable[[], None] | None = None
        self._finish: Callable[[], None] | None = None
        self._dump: Callable[[], None] | None = None

    def listen(self) -> None:
        """Install the handlers; called again after foreign code, which may have replaced them."""
        for signum in _SIGNALS:
            # nohup ignores SIGHUP for a command that is to outlive its terminal.
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
                signal.signal(signum, self._on_signal)
        signal.signal(signal.SIGUSR1, self._on_usr1)  # by default it would kill

    def stop_with(self, stop: Callable[[], None]) -> None:
        """Have the first signal call `stop`, which must take no lock, and not end the process."""
        self._stop = stop

    def dump_with(self, dump: Callable[[], None]) -> None:
        """Have SIGUSR1 call `dump`, which must take no lock."""
        self._dump = dump

    def finish_with(self, finish: Callable[[], None]) -> None:
        """Have a first signal that ends the process call `finish` before; see `end_now`."""
        self._finish = finish

    def _on_usr1(self, _signum: int, _frame: FrameType | None) -> None:
        if self._dump is None:
            _say("received SIGUSR1: no worker runs yet")
        else:
            self._dump()

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        if self._received:
            end_now(128 + signum)
        self._received = True
        name = signal.Signals(signum).name
        if self._stop is None:
            _say(f"received {name}: leaving")
            end_now(0 if self.stop_is_success else 128 + signum, self._finish)
        self._stop()
        _say(f"received {name}: stopping; a second signal ends the process now")


def end_now(code: int, finish: Callable[[], None] | None = None) -> NoReturn:
    """End the process without waiting for its threads, after what can be flushed within a second.

    Args:
        code: The exit code.
        finish: Called first, within the same second.
    """
    with suppress(RuntimeError):  # no more threads can be started
        # Whatever takes what is flushed may take nothing, and a lock may be held for ever.
        _thread.start_new_thread(_end_after, (_FLUSH_SECONDS, code))
    for step in (finish, _flush):
        if step is not None:
            with suppress(Exception):
                step()
    os._exit(code)


def _end_after(seconds: float, code: int) -> None:
    time.sleep(seconds)
    os._exit(code)


def _flush() -> None:
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)  # a progress bar hides it
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _say(text: str) -> None:
    """Write a line straight to standard error: the stream's own buffer may be in use."""
    with suppress(OSError):
        os.write(2, f"queuey-sync: {text}\n".encode())
