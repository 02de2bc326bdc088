"""What every thread of this process is doing, as text: for a worker that seems to stand still."""

import sys
import threading
import traceback


def thread_stacks() -> str:
    """The stack of each thread, under its name; that of the caller as well.

    >>> "thread MainThread" in thread_stacks()
    True
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - documented
        stack = "".join(traceback.format_stack(frame)).rstrip()
        parts.append(f"thread {names.get(ident, ident)}\n{stack}")
    return "\n".join(parts)
