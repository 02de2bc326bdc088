"""A Django site in processes of its own, and a real PostgreSQL where connections matter.

Nothing here sets Django up in the process of the tests: its settings are one for each process.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import Postgres, PostgresMissing, postgres_bin
from tests.support.source import ROOT
from tests.support.waiting import eventually

pytest.importorskip("django")

collect_ignore = ["project"]

PROJECT = Path(__file__).parent / "project"
SHOP = ROOT / "docs" / "examples" / "shop"
_IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")


class Started:
    """A command that was started; what it writes is in two files."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: Path, err: Path) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def out(self) -> str:
        """What it has written to standard output so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """What it has written to standard error so far."""
        return self._err.read_text()

    def says(self, text: str) -> None:
        """Wait until it has written this to standard error."""

        def said() -> bool:
            if self.process.poll() is not None and text not in self.err:
                pytest.fail(f"ended before it said {text!r}; standard error:\n{self.err}")
            return text in self.err

        eventually(said, 20, f"{text!r} on standard error")

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, seconds: float = 60) -> int:
        """The exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s; standard error:\n{self.err}")


class Site:
    """A Django project with data of its own, and the commands that were started in it."""

    def __init__(self, project: Path, folder: Path, **environment: str) -> None:
        self.project = project
        self.folder = folder
        self.marks = folder / "marks"
        self.environment = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **environment}
        self._started: list[Started] = []

    def start(self, *arguments: str, **environment: str) -> Started:
        """Start Python in the project's folder, such as with ``manage.py queuey worker``."""
        number = len(self._started)
        out, err = self.folder / f"out{number}", self.folder / f"err{number}"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-B", *arguments],
                cwd=self.project,
                env={**os.environ, **self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        started = Started(process, out, err)
        self._started.append(started)
        return started

    def run(self, *arguments: str, code: int = 0, **environment: Any) -> Started:
        """Run a command to its end, which must have this exit code."""
        started = self.start(*arguments, **environment)
        assert started.wait() == code, f"{started.out}\n{started.err}"
        return started

    def manage(self, *arguments: str, code: int = 0, **environment: Any) -> Started:
        """Run a command of ``manage.py``."""
        return self.run("manage.py", *arguments, code=code, **environment)

    def scenario(self, name: str, **environment: Any) -> Any:
        """What a function of ``scenarios.py`` returns, in a process where Django is set up."""
        return json.loads(self.run("scenarios.py", name, **environment).out)

    def marked(self, *lines: str) -> None:
        """Wait until handlers have left exactly these lines, in any order."""

        def left() -> bool:
            found = self.marks.read_text().splitlines() if self.marks.exists() else []
            assert sorted(found) == sorted(lines)
            return True

        eventually(left, 20)

    def close(self) -> None:
        """End what still runs."""
        for started in self._started:
            if started.process.poll() is None:
                started.process.kill()
                started.process.wait()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The site of these tests, on SQLite files of this test's own."""
    marks = str(tmp_path / "marks")
    made = Site(PROJECT, tmp_path, THINGS_DATA=str(tmp_path), THINGS_MARKS=marks)
    yield made
    made.close()


@pytest.fixture
def migrated(site: Site) -> Site:
    """The same, with the tables of its models."""
    site.manage("migrate", "-v", "0")
    return site


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Site]:
    """The shop of the documentation."""
    made = Site(SHOP, tmp_path, SHOP_DATA=str(tmp_path))
    yield made
    made.close()


def _server() -> Postgres:
    try:
        postgres_bin()
    except PostgresMissing as error:
        if _IN_CI:
            pytest.fail(str(error))
        pytest.skip(str(error))
    return Postgres()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for the whole run, not to be killed by a test."""
    with _server() as server:
        yield server


@pytest.fixture
def private_postgres() -> Iterator[Postgres]:
    """A server for this test alone."""
    with _server() as server:
        yield server
