"""A private PostgreSQL on a free port, for tests of connections: started, killed, started again.

The server refuses to run as root; for root it runs as another user, in a folder of that user's.
``scripts/postgres`` installs what is needed.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from ctypes import CDLL
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import debian
from tests.support.waiting import eventually

_USER = "queuey"
_PR_SET_PDEATHSIG = 1
_libc = CDLL(None)


class PostgresMissing(Exception):
    """There is no PostgreSQL on this machine, and it cannot be installed; says what to do."""


def postgres_bin() -> Path:
    """The folder of the server's programs.

    Raises:
        PostgresMissing: It is not installed.
    """
    debians = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    found = debians[-1] if debians else shutil.which("postgres")
    if found is None:
        raise PostgresMissing("no PostgreSQL is installed: install Debian's package postgresql")
    return Path(found).resolve().parent


def install_postgres() -> None:
    """Install Debian's package when it is missing, without starting its service.

    Raises:
        PostgresMissing: It is missing, and this is not root on a Debian.
        InstallFailed: The package could not be installed.
    """
    try:
        postgres_bin()
    except PostgresMissing:
        if not debian.can_install():
            raise
        debian.install("postgresql")


class Postgres:
    """One server with its data; to be used as a context manager."""

    def __init__(self) -> None:
        self._bin = postgres_bin()
        self._folder = Path(tempfile.mkdtemp(prefix="queuey-postgres-"))
        self.port = _free_port()
        self._server: subprocess.Popen[bytes] | None = None
        self._user: int | None = None
        self._group: int | None = None
        if os.geteuid() == 0:
            owner = pwd.getpwnam("nobody")
            self._user, self._group = owner.pw_uid, owner.pw_gid
            os.chown(self._folder, self._user, self._group)

    def __enter__(self) -> Self:
        options = ("--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        self._run("initdb", f"--pgdata={self._data}", f"--username={_USER}", *options)
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """What PostgreSQL's programs and libraries need to find it."""
        where = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port)}
        return {**where, "PGUSER": _USER, "PGDATABASE": "postgres"}

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": 60,
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        command = [str(self._bin / "postgres"), "-D", str(self._data), *arguments]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                preexec_fn=_die_with_the_parent,  # noqa: PLW1509 - one call into the kernel
                user=self._user,
                group=self._group,
            )
        eventually(self._is_ready, 30, "PostgreSQL takes connections")

    def kill(self) -> None:
        """Kill the server and the process of each session with SIGKILL."""
        assert self._server is not None
        pid = self._server.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self._server.kill()  # first, or it would see its children crash and start new ones
        for child in children:
            with suppress(ProcessLookupError):  # it saw its parent die
                os.kill(int(child), signal.SIGKILL)
        self._server.wait(30)
        self._server = None
        # A server refuses to start while a process of the last one has its memory.
        eventually(lambda: not any(_runs(child) for child in children), 30, "all are gone")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _is_ready(self) -> bool:
        command = [str(self._bin / "pg_isready"), "--quiet"]
        return subprocess.run(command, env=self.environment, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._bin / program), *arguments],
            check=True,
            capture_output=True,
            cwd=self._folder,
            user=self._user,
            group=self._group,
        )


def _runs(pid: str) -> bool:
    """Whether there is such a process; one that nobody has waited for has no memory any more."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _die_with_the_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
