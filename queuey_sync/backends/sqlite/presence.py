"""A sign that a consumer is alive, which the kernel takes down however its process ends.

Each consumer keeps a small file beside the store, locked with ``flock``. Who can lock the file of
another knows that it is gone. The name is never used twice, so nobody waits for a lock here.
"""

import fcntl
import logging
import os
import secrets
import time
from contextlib import suppress

from queuey_sync.backends.sqlite import store
from queuey_sync.backends.sqlite.file import StoreFile
from queuey_sync.backends.sqlite.schema import Database
from queuey_sync.errors import BrokerUnavailable

log = logging.getLogger(__name__)


class Presence:
    """The sign of one consumer; made visible at once.

    Args:
        path: The store.

    Raises:
        BrokerUnavailable: The file cannot be made.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.token = f"{os.getpid()}-{secrets.token_hex(4)}"
        """What finds the sign."""
        name = _sign(path, self.token)
        try:
            self._descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            raise BrokerUnavailable(f"{name} cannot be made and locked: {fault}") from fault

    def leave(self, *, struck_off: bool) -> None:
        """Take the sign down; once. Who is not struck off yet leaves it for others to find."""
        if struck_off:
            _remove(self._path, self.token)
        os.close(self._descriptor)


def monotonic_ms() -> int:
    """The clock of all processes of this machine that leases are measured by."""
    return time.monotonic_ns() // 1_000_000


def reap(file: StoreFile, but: int = 0) -> None:
    """Strike off every consumer that is gone, so that its jobs wait again; `but` never is."""

    def is_gone(row: store.ConsumerRow) -> bool:
        return row.id != but and (row.is_over(monotonic_ms()) or _is_lockable(file.path, row.token))

    def operation(db: Database) -> list[store.ConsumerRow]:
        rows = store.gone(db, is_gone)
        for row in rows:
            store.leave(db, row.id)
        return rows

    if not file.read(lambda db: store.gone(db, is_gone)):
        return
    for row in file.write(operation):
        log.warning("the worker %s is gone; what it had in hand waits again", row.token)
        _remove(file.path, row.token)


def _sign(path: str, token: str) -> str:
    """The file that is locked."""
    return f"{os.path.realpath(path)}-worker-{token}"


def _is_lockable(path: str, token: str) -> bool:
    # One whose file is missing counts as alive: somebody may have tidied up. Its lease will tell.
    try:
        descriptor = os.open(_sign(path, token), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove(path: str, token: str) -> None:
    with suppress(OSError):
        os.unlink(_sign(path, token))  # noqa: PTH108 - as short as the rest
