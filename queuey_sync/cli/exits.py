"""The exit codes, which error gives which, and how the process ends.

A supervisor may build on them: a code of 3 will not get better by itself, one of 4 may. A process
that a signal ended has 128 plus the signal's number, as in a shell.
"""

import enum
import logging
import sys
import threading
import time
from typing import NoReturn

from queuey_sync.cli.reporting import flush_output
from queuey_sync.cli.signals import end_now
from queuey_sync.errors import (
    BackendError,
    ConfigurationError,
    ConsumerStopped,
    QueueyError,
    StartError,
    StopTimedOut,
    WorkerStuck,
)

_LEAVING_SECONDS = 0.5
"""What threads without a job need at most to end, after they were told to."""


class Exit(enum.IntEnum):
    """The exit codes of every command."""

    SUCCESS = 0
    """Done; for a worker: stopped when asked to, with all that ran finished."""
    UNEXPECTED = 1
    """A fault that none of the others names, with a traceback; or results that were not written."""
    USAGE = 2
    """The command line, a variable or the input is wrong."""
    BAD_APP = 3
    """The app cannot be imported, is wrong, or cannot run in a child process."""
    BROKER = 4
    """The broker cannot be reached, was lost, or refused."""
    STOP_TIMED_OUT = 5
    """A stop took longer than its deadline; the jobs that still ran went back to their queues."""
    WORK_LEFT = 6
    """A limit or a signal ended a drain, or a move, and jobs are left."""
    LOCKED = 7
    """Another drain holds the lock; nothing was done."""
    DEAD_LETTERS = 8
    """With ``--fail-on-dead``: a drain emptied the queues, but jobs were given up on."""
    STUCK = 9
    """Every slot of a worker is held by a handler over its time limit."""


def exit_for(error: QueueyError) -> Exit:
    """The exit code that tells of an error.

    >>> from queuey_sync.errors import ConsumerStopped
    >>> exit_for(ConsumerStopped("shop.mail")).name
    'BROKER'
    """
    match error:
        case WorkerStuck():
            return Exit.STUCK
        case StopTimedOut():
            return Exit.STOP_TIMED_OUT
        case BackendError() | ConsumerStopped():
            return Exit.BROKER
        case ConfigurationError() | StartError():
            return Exit.BAD_APP
        case _:
            return Exit.UNEXPECTED


def leave(code: int) -> NoReturn:
    """End the process; at once when a worker left handlers behind that are over their time limit.

    Python would wait for their threads for ever. What ``atexit`` holds is lost in that case alone.
    """
    deadline = time.monotonic() + _LEAVING_SECONDS
    slots = [one for one in threading.enumerate() if one.name.startswith("queuey-slot")]
    for thread in slots:
        thread.join(max(0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in slots):
        end_now(code, finish=logging.shutdown)
    flush_output()
    sys.exit(code)
