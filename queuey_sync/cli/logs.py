"""The log of a command: one handler, for standard error or for a file.

It is set up after the app was imported, so that the app's own set-up always comes first. The
handler for a file is in `log_file.py`.
"""

import logging
import os
import socket
from dataclasses import dataclass, field, replace
from fcntl import LOCK_EX, LOCK_UN, flock
from pathlib import Path
from typing import IO, Literal, TextIO

from pythonjsonlogger.json import JsonFormatter

from queuey_sync.cli.log_file import LogFile, Uninterrupted
from queuey_sync.cli.reporting import without_passwords
from queuey_sync.observe.logs import JobLogFilter

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_LEVEL = "INFO"

_JOB_FIELDS = ("job_id", "job_type", "queue", "attempt", "correlation_id")


class TextFormatter(logging.Formatter):
    """Time, process, level, logger and message; then the job, for a record made inside one.

    Args:
        worker: The name of the worker; that of another process is followed by its own id.

    >>> record = logging.LogRecord("shop", logging.INFO, "", 1, "sent", (), None)
    >>> record.job_type, record.attempt = "mail.send", 2
    >>> TextFormatter("web:7").format(record)
    '... web:7/... INFO shop: sent [job_type=mail.send attempt=2]'
    """

    def __init__(self, worker: str) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the lines of a traceback."""
        return without_passwords(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """The line before any traceback."""
        process = "" if self._worker.endswith(f":{os.getpid()}") else f"/{os.getpid()}"
        origin = f"{self.formatTime(record)} {self._worker}{process}"
        line = f"{origin} {record.levelname} {record.name}: {record.message}"
        fields = [(key, str(getattr(record, key))) for key in _JOB_FIELDS if hasattr(record, key)]
        if not fields or fields[0][1] in line:  # our own records about a job name it already
            return line
        return f"{line} [{' '.join(f'{key}={value}' for key, value in fields)}]"


class JsonLines(JsonFormatter):
    """One object a line: time, level, logger, message, worker, pid, and the record's own fields.

    Those of the job are among them, for a record made inside one.

    >>> record = logging.LogRecord("shop", logging.INFO, "", 1, "sent", (), None)
    >>> record.attempt = 2
    >>> JsonLines("web:7").format(record)
    '{"level": "INFO", "logger": "shop", "message": "sent", "pid": ..., "worker": "web:7",
    "attempt": 2, "time": "...+00:00"}'
    """

    def __init__(self, worker: str) -> None:
        super().__init__(
            "%(levelname)s %(name)s %(message)s %(process)d",
            rename_fields={"levelname": "level", "name": "logger", "process": "pid"},
            static_fields={"worker": worker},
            timestamp="time",
        )

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return without_passwords(super().format(record))


class LineStream(Uninterrupted, logging.StreamHandler[TextIO]):
    """Writes to standard error, which several processes may share without tearing a line.

    Longer writes to a pipe are cut into pieces by the system. A lock of the system's goes with its
    process, even one that is killed.
    """

    _turn: IO[bytes] | None = None

    def share(self, lock: str) -> None:
        """Write only while holding the lock of this file, which the other processes hold too."""
        self._turn = Path(lock).open("rb")  # noqa: SIM115 - held as long as the handler is

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record whole."""
        if self._turn is None:
            super().emit(record)
            return
        try:
            flock(self._turn, LOCK_EX)
            super().emit(record)
        finally:
            flock(self._turn, LOCK_UN)

    def close(self) -> None:
        """Let go of the lock."""
        if self._turn is not None:
            self._turn.close()
        super().close()

    def _at_fork_reinit(self) -> None:
        """In a copy of the process: what it inherits of the lock is its parent's turn, too."""
        super()._at_fork_reinit()  # type: ignore[misc] # logging calls it, and says so in comments
        if self._turn is not None:
            self.share(self._turn.name)


def _default_worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """How a process logs, in plain values, so that child processes can be given it too."""

    level: str | None = None
    """For this library's records in any case, and for all others if the set-up is ours. None leaves
    the level that the app gave this library's, and else is `DEFAULT_LEVEL`."""
    format: Literal["text", "json"] = "text"
    file: str | None = None
    """None for standard error."""
    max_size: int = 50 * 1024**2
    keep: int = 10
    compress: bool = False
    worker: str = field(default_factory=_default_worker)
    """The name of the worker in each record: its host and process."""
    lock: str | None = None
    """What processes that share standard error take turns with; see `for_children`."""

    def open_file(self) -> LogFile | None:
        """A handler for the file, if there is to be one."""
        if self.file is None:
            return None
        return LogFile(self.file, max_size=self.max_size, keep=self.keep, compress=self.compress)

    def for_children(self) -> "Log":
        """The log of child processes, whose records go where those of this process go.

        The lock is a file in memory, which lives as long as this process.
        """
        lock = f"/proc/{os.getpid()}/fd/{os.memfd_create('queuey-sync-log')}"
        for handler in logging.getLogger().handlers:
            if isinstance(handler, LineStream):
                handler.share(lock)
        return replace(self, lock=lock)


def set_up_logging(log: Log) -> bool:
    """Write the log to the file; if there is none, and no set-up of the app's, to standard error.

    What the app has set up is kept.

    Returns:
        Whether there is a handler of ours.
    """
    ours, root = logging.getLogger("queuey_sync"), logging.getLogger()
    if log.level is not None or ours.level == logging.NOTSET:
        ours.setLevel(log.level or DEFAULT_LEVEL)
    handler: logging.Handler | None = log.open_file()
    if not root.handlers:
        root.setLevel(log.level or DEFAULT_LEVEL)
        handler = handler or _standard_error(log.lock)
    if handler is None:
        return False
    formatter = JsonLines if log.format == "json" else TextFormatter
    handler.setFormatter(formatter(log.worker))
    handler.addFilter(JobLogFilter())
    root.addHandler(handler)
    return True


def _standard_error(lock: str | None) -> LineStream:
    handler = LineStream()
    if lock is not None:
        handler.share(lock)
    return handler
