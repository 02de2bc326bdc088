"""``--lock``: at most one drain at a time, by a lock of the system's on a file.

It goes with its process, even one that is killed, so a lock is never left behind; the file stays,
and says who held it last. portalocker takes the lock, which the log files need as well.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import portalocker

from queuey_sync.cli.exits import Exit


class Locked(click.ClickException):
    """Somebody else holds the lock."""

    exit_code = Exit.LOCKED


@contextmanager
def held(path: str) -> Iterator[None]:
    """Hold the lock of a file, which is made if need be.

    Raises:
        Locked: Somebody else does.
        click.UsageError: It is no file that can be written.
    """
    try:
        file = Path(path).open("a+")  # noqa: SIM115 - closed below
    except OSError as error:
        raise click.UsageError(f"--lock {path}: {error.strerror}") from None
    with file:
        try:
            portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
        except portalocker.AlreadyLocked:
            file.seek(0)
            raise Locked(f"--lock {path}: held by {file.read(100).strip() or 'another'}") from None
        except (portalocker.LockException, OSError) as error:
            raise click.UsageError(f"--lock {path}: it cannot be locked: {error}") from None
        file.truncate(0)
        file.write(f"process {os.getpid()}\n")
        file.flush()
        yield
