"""Real web servers over a small site, a load of real requests, and its jobs drained afterwards."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.source import ROOT
from tests.support.waiting import eventually

collect_ignore = ["apps"]

APPS = Path(__file__).parent / "apps"
LIMIT = 4
"""The publish timeout of the site, in seconds."""

Command = Callable[[int], list[str]]


def gunicorn(port: int) -> list[str]:
    """Two workers, forked from a process that has imported the site."""
    options = ["--preload", "--workers=2", "--worker-class=gthread", "--threads=250"]
    return [sys.executable, "-m", "gunicorn", *options, f"--bind=127.0.0.1:{port}", "site_app:web"]


def uwsgi(port: int) -> list[str]:
    """Two processes, forked from one that has imported the site, with threads enabled."""
    program = str(Path(sys.executable).with_name("uwsgi"))
    options = ["--master", "--die-on-term", "--enable-threads", "--processes=2", "--threads=20"]
    where = [f"--http-socket=127.0.0.1:{port}", "--virtualenv", sys.prefix, "--need-app"]
    return [program, *options, *where, "--module=site_app:web"]


@dataclass(frozen=True)
class Answer:
    """What a request came to, as the client saw it."""

    number: int
    status: int
    took: float
    body: dict[str, Any]


class WebSite:
    """A web server in processes of its own."""

    def __init__(self, folder: Path, url: str, prefix: str) -> None:
        self._folder = folder
        self._marks = folder / "marks"
        self._environment = {
            **os.environ,
            "PYTHONPATH": f"{APPS}{os.pathsep}{ROOT}",
            "SITE_URL": url,
            "SITE_PREFIX": prefix,
            "SITE_LIMIT": f"{LIMIT}s",
            "SITE_MARKS": str(self._marks),
        }
        self._port = 0
        self._server: subprocess.Popen[bytes] | None = None

    def start(self, command: Command) -> None:
        """Start a server, and wait until it answers."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self._port = one.getsockname()[1]
        with (self._folder / "log").open("wb") as log:
            self._server = subprocess.Popen(
                command(self._port),
                env=self._environment,
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def answers() -> bool:
            assert self._server is not None
            if self._server.poll() is not None:
                pytest.fail(f"the server ended:\n{self.log}")
            try:
                return self.get("/threads").status == 200
            except OSError:
                return False

        eventually(answers, 30, "the server answers")

    @property
    def log(self) -> str:
        """What the server has written."""
        return (self._folder / "log").read_text()

    def get(self, path: str, number: int = -1) -> Answer:
        """Ask for a page."""
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = json.loads(response.read())
        finally:
            connection.close()
        return Answer(number, response.status, time.monotonic() - began, body)

    def enqueue(self, number: int) -> Answer:
        """Ask for a job."""
        return self.get(f"/enqueue/{number}", number)

    def ran(self) -> set[int]:
        """Run what waits, in a process of its own; the numbers of the jobs."""
        command = [sys.executable, "-m", "queuey_sync", "drain", "site_app:app"]
        done = subprocess.run(
            command,
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return {int(line) for line in self._marks.read_text().split()}

    def stop(self) -> float:
        """Send SIGTERM, and return how many seconds the exit took."""
        assert self._server is not None
        began = time.monotonic()
        self._server.terminate()
        self._server.wait(60)
        self._server = None
        return time.monotonic() - began

    def close(self) -> None:
        """End what still runs: the server and its workers are a process group."""
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()


MakeSite = Callable[[str], WebSite]


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[MakeSite]:
    """Makes a site on a broker of this test's own."""
    made = []

    def make(url: str) -> WebSite:
        made.append(WebSite(tmp_path, url, "site"))
        return made[-1]

    yield make
    for site in made:
        site.close()
