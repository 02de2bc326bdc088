"""What SQLite says went wrong, in the words and classes of this library.

`BrokerUnavailable` is what may pass by itself or by a hand on the file system; a plain
`BackendError` needs another file; `PublishRefused` needs room.
"""

import sqlite3
from pathlib import Path

from queuey_sync.errors import BackendError, BrokerUnavailable, PublishRefused

_UNUSABLE = {
    sqlite3.SQLITE_PERM: "it may not be opened",
    sqlite3.SQLITE_READONLY: "it may only be read",
    sqlite3.SQLITE_IOERR: "reading or writing it failed",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
}
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore a backup, or look at it with `PRAGMA"
    " integrity_check`",
    sqlite3.SQLITE_NOTADB: "it is no SQLite file; nothing was changed",
}


def is_busy(fault: sqlite3.Error) -> bool:
    """Whether others were writing all the time."""
    return _code(fault) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


def translated(path: str, fault: sqlite3.Error) -> BackendError:
    """The error to raise for a fault, with the fault as its cause."""
    error = _translated(path, fault)
    error.__cause__ = fault
    return error


def _translated(path: str, fault: sqlite3.Error) -> BackendError:
    code = _code(fault)
    if is_busy(fault):
        return BrokerUnavailable(
            f"{path} stayed locked by others for longer than busy_timeout: {fault}"
        )
    if code == sqlite3.SQLITE_FULL:
        return PublishRefused(f"the disk of {path} is full, so nothing was written: {fault}")
    if code in _DAMAGED:
        return BackendError(f"{path} cannot be used: {_DAMAGED[code]}: {fault}")
    folder = Path(path).parent
    if code == sqlite3.SQLITE_CANTOPEN and not folder.is_dir():
        return BrokerUnavailable(f"{path} cannot be used: the folder {folder} does not exist")
    if code in _UNUSABLE:
        return BrokerUnavailable(f"{path} cannot be used: {_UNUSABLE[code]}: {fault}")
    return BackendError(f"{path} cannot be used: {fault}")


def _code(fault: sqlite3.Error) -> int:
    # Errors that Python's module raises by itself have no code; the low byte is the kind of one.
    return int(getattr(fault, "sqlite_errorcode", 0)) & 0xFF
