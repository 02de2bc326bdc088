"""A log file that several processes write to: every line whole, and pieces of limited size.

concurrent-log-handler has a process wait for its turn, see that another one has rotated the file,
and rotate it when it is full. What is added here is for the hard moments: a full disk, a process
that is killed while it writes or rotates, and a time limit that ends a job inside a log call.
"""

import errno
import io
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_UN, flock
from itertools import pairwise
from pathlib import Path
from typing import Any

from concurrent_log_handler import ConcurrentRotatingFileHandler

from queuey_sync.cli.reporting import say

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Uninterrupted(logging.Handler):
    """A handler whose lock is let go whatever comes in between.

    Python's own may keep it for ever when a time limit strikes a thread that waits for it, and then
    no other thread of the process can log again.
    """

    def handle(self, record: logging.LogRecord) -> bool:
        """Emit the record, unless a filter holds it back."""
        kept: Any = self.filter(record)  # from Python 3.12 on it may be another record
        if kept:
            assert self.lock is not None  # noqa: S101 - every handler has one
            with self.lock:
                self.emit(record if kept is True else kept)
        return bool(kept)


class LogFile(Uninterrupted, ConcurrentRotatingFileHandler):
    """Appends each record to a file, whole or not at all.

    A record that cannot be written is dropped, and harms no job: that is said on standard error,
    and in the file as soon as it takes lines again. All processes that write to one file must have
    the same sizes.

    Args:
        path: The file; its lock is a hidden file beside it.
        max_size: From so many bytes on it is rotated.
        keep: How many older pieces are kept, from ``path.1`` on, the newest.
        compress: Whether these are compressed with gzip.
    """

    def __init__(self, path: str, *, max_size: int, keep: int, compress: bool) -> None:
        super().__init__(path, maxBytes=max_size, backupCount=keep, use_gzip=compress)
        self._dropped = 0
        """Guarded by the handler's lock, as is `_fault`."""
        self._fault = ""

    def check(self) -> None:
        """Open the file and its lock, before anything is logged.

        Raises:
            OSError: Nothing can be logged there; a full disk is no reason.
        """
        try:
            file = self.stream = self.do_open()
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            self._do_lock()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
        finally:
            self._do_unlock()

    # What follows takes the place of methods of concurrent-log-handler, which calls them.

    def _do_lock(self) -> None:
        """Wait for this process's turn; the handler's own lock keeps its threads apart."""
        if self.stream_lock is None:
            self._open_lockfile()
        flock(self.stream_lock, LOCK_EX)  # type: ignore[arg-type] # it has just been opened

    def _do_unlock(self) -> None:
        """End the turn, or see that there is none."""
        if self.stream_lock is not None:
            flock(self.stream_lock, LOCK_UN)

    def _at_fork_reinit(self) -> None:
        """In a copy of the process: what it inherits of the lock is its parent's turn, too."""
        super()._at_fork_reinit()
        self.stream_lock = None

    def do_open(self, mode: str | None = None) -> Any:  # noqa: ANN401, ARG002 - other than declared
        """Open the file without a buffer, which would keep what could not be written."""
        return io.FileIO(self.baseFilename, "a+")

    def do_write(self, msg: str) -> None:
        """Write a line, in this process's turn."""
        file = self.stream = self.stream or self.do_open()
        lines = [self._missing(), msg] if self._dropped else [msg]
        data = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
        _append(file.fileno(), data)
        self._dropped, self._fault = 0, ""

    def _missing(self) -> str:
        text = f"records are missing here, which could not be written: {self._dropped}"
        where = (__name__, logging.WARNING, __file__, 0)
        return self.format(logging.LogRecord(*where, f"{text} ({self._fault})", None, None))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Count a record that could not be written; show one that was called with wrong arguments.

        Called where the error is being handled.
        """
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._dropped += 1
        if self._fault != (fault := error.strerror or str(error)):
            self._fault = fault
            with suppress(OSError, ValueError):
                say(f"records are dropped: {self.baseFilename} cannot be written: {fault}")

    def doRollover(self) -> None:  # noqa: N802 - logging's own name
        """Move every piece on by one, in this process's turn.

        A kill may cut this off anywhere: what is left to do is seen, and done, the next time.
        """
        self._close()
        pieces = list(self._pieces())
        for newer, older in reversed(list(pairwise(pieces))):
            _move(newer, older)
        Path(self.baseFilename).replace(pieces[0])
        if self.use_gzip:
            self.do_gzip(str(pieces[0]))

    def _pieces(self) -> Iterator[Path]:
        """The older pieces, up to the first number that is free, or to the last of all."""
        for number in range(1, self.backupCount + 1):
            piece = Path(f"{self.baseFilename}.{number}")
            yield piece
            if not (piece.exists() or _compressed(piece).exists()):
                break


def _append(file: int, data: bytes) -> None:
    """Write data at the end, all or nothing, after a whole line in any case."""
    end = os.lseek(file, 0, os.SEEK_END)
    if end and os.pread(file, 1, end - 1) != b"\n":  # whoever wrote it was killed meanwhile
        data = b"\n" + data
    try:
        while data:
            data = data[os.write(file, data) :]
    except OSError:
        os.ftruncate(file, end)
        raise


def _move(newer: Path, older: Path) -> None:
    """Put a piece in the place of an older one."""
    if newer.exists():  # if there is a compressed one, too, that was not finished
        _compressed(newer).unlink(missing_ok=True)
        newer.replace(older)
        _compressed(older).unlink(missing_ok=True)
    else:
        _compressed(newer).replace(_compressed(older))
        older.unlink(missing_ok=True)


def _compressed(piece: Path) -> Path:
    return piece.with_name(f"{piece.name}.gz")
