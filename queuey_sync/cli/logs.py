"""The log of a command: one handler that writes to standard error, unless the app set up its own.

Called after the app was imported, so that the app's own set-up always comes first.
"""

import logging
import os
from fcntl import LOCK_EX, LOCK_UN, flock
from pathlib import Path
from typing import IO, TextIO

from queuey_sync.observe.logs import JobLogFilter

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_LEVEL = "INFO"

_JOB_FIELDS = ("job_id", "job_type", "queue", "attempt")


class JobFormatter(logging.Formatter):
    """Time, level, logger and message; then the job, for a record that was made inside one.

    >>> record = logging.LogRecord("shop", logging.INFO, "", 1, "sent", (), None)
    >>> record.job_type, record.attempt = "mail.send", 2
    >>> JobFormatter().format(record)
    '... INFO shop: sent [job_type=mail.send attempt=2]'
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """The line before any traceback."""
        line = super().formatMessage(record)
        fields = [(key, str(getattr(record, key))) for key in _JOB_FIELDS if hasattr(record, key)]
        if not fields or fields[0][1] in line:  # our own records about a job name it already
            return line
        return f"{line} [{' '.join(f'{key}={value}' for key, value in fields)}]"


class LineStream(logging.StreamHandler[TextIO]):
    """Writes to standard error, which several processes may share without tearing a line.

    Longer writes to a pipe are cut into pieces by the system. A lock of the system's goes with its
    process, even one that is killed.
    """

    _lock: IO[bytes] | None = None

    def share(self, lock: str) -> None:
        """Write only while holding the lock of this file, which the other processes hold too."""
        self._lock = Path(lock).open("rb")  # noqa: SIM115 - held as long as the handler is

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record whole."""
        if self._lock is None:
            super().emit(record)
            return
        flock(self._lock, LOCK_EX)
        try:
            super().emit(record)
        finally:
            flock(self._lock, LOCK_UN)


def share_log() -> str:
    """Share standard error with child processes; returns the lock to set up their logs with.

    It is a file in memory, which lives as long as this process.
    """
    lock = f"/proc/{os.getpid()}/fd/{os.memfd_create('queuey-sync-log')}"
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LineStream):
            handler.share(lock)
    return lock


def set_up_logging(level: str | None, lock: str | None = None) -> None:
    """Write the log to standard error, if the app has not set up the root logger.

    Args:
        level: For this library's records in any case, and for all others if the set-up is ours.
            None leaves the level that the app gave this library's, and else is `DEFAULT_LEVEL`.
        lock: What `share_log` returned in the process that shares its standard error with this one.
    """
    ours = logging.getLogger("queuey_sync")
    if level is not None or ours.level == logging.NOTSET:
        ours.setLevel(level or DEFAULT_LEVEL)
    root = logging.getLogger()
    if root.handlers:
        return
    handler = LineStream()
    if lock is not None:
        handler.share(lock)
    handler.setFormatter(JobFormatter())
    handler.addFilter(JobLogFilter())
    root.addHandler(handler)
    root.setLevel(level or DEFAULT_LEVEL)
