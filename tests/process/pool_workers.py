"""Starts `pool_program.py`, and finds every process that came of it, whoever its parent is by now.

They all have one variable in common, which no other process has.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
START_METHODS = ("forkserver", "spawn")
each_start_method = pytest.mark.parametrize("start_method", START_METHODS)


def _without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """What a program may inherit; importing `pool_jobs` here has set the variable, too."""
    return {name: value for name, value in environment.items() if name != "POOL_PROGRAM"}


class Family:
    """A program in a session of its own, and all that it started."""

    def __init__(self, command: Sequence[str], **environment: str) -> None:
        """Start the program."""
        self._mark = uuid.uuid4().hex
        self._folder = tempfile.TemporaryDirectory(prefix="queuey-pool-")
        folder = Path(self._folder.name)
        self._marks_file, self._log_file = folder / "marks", folder / "log"
        with self._log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env={
                    **_without_ours(os.environ),
                    "POOL_FAMILY": self._mark,
                    "MARKS_FILE": str(self._marks_file),
                    "PYTHONPATH": str(ROOT),
                    "PYTHONWARNINGS": "always::DeprecationWarning",
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> None:
        """Leave nothing behind."""
        while living := self.living():
            for pid in living:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            time.sleep(0.01)
        self.process.wait()
        self._folder.cleanup()

    def living(self) -> dict[int, str]:
        """The commands of the processes that live, the program among them, by pid."""
        variable = f"POOL_FAMILY={self._mark}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if variable in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(folder.name)] = command
        return found

    def send(self, signum: int, *, program: bool = True) -> None:
        """Send a signal to each process, as systemd does; perhaps not to the program itself."""
        for pid in self.living():
            if program or pid != self.process.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)

    def marks(self, event: str | None = None, **values: object) -> list[dict[str, Any]]:
        """The marks, all or those with these values."""
        if not self._marks_file.exists():
            return []
        lines = self._marks_file.read_text().split("\n")[:-1]
        wanted = values if event is None else {"event": event, **values}
        return [each for each in map(json.loads, lines) if wanted.items() <= each.items()]

    def awaits(self, count: int, event: str, timeout: float = 20, **values: object) -> None:
        """Wait until there are so many of these marks."""

        def enough() -> bool:
            if len(self.marks(event, **values)) >= count:
                return True
            assert self.process.poll() is None, self.log()
            raise AssertionError(self.log()[-2000:])

        eventually(enough, timeout, f"{count} marks `{event}` {values}")

    def stop(self, signum: int = signal.SIGTERM, timeout: float = 20) -> int:
        """Ask the program to stop; gives its exit code."""
        self.process.send_signal(signum)
        return self.wait(timeout)

    def wait(self, timeout: float = 20) -> int:
        """Wait for the program's end; gives its exit code."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs: {self.living()}\n{self.log()}") from None

    def is_gone(self) -> bool:
        """Whether the program and all that came of it have ended; wait for it."""
        living = self.living()
        assert {} == living
        return True

    def log(self) -> str:
        """What all of them wrote."""
        return self._log_file.read_text(errors="replace")

    def settle_failures(self) -> int:
        """How many the program told of at its end."""
        return int(re.findall(r"settle failures: (\d+)", self.log())[-1])


Start = Callable[..., Family]


def family_starter() -> Iterator[Callable[..., Family]]:
    """What starts families that are ended at the end of a test."""
    with ExitStack() as cleanup:

        def start(command: Sequence[str], **environment: str) -> Family:
            family = Family(command, **environment)
            cleanup.callback(family.end)
            return family

        yield start


def program(
    jobs: Sequence[dict[str, object]] = (), *, concurrency: int = 1, **options: Any
) -> list[str]:
    """The command of the program with these jobs, and options of the worker and the pool."""
    given = {"jobs": list(jobs), "concurrency": concurrency, "pool": {}, **options}
    return ["-m", "tests.process.pool_program", json.dumps(given)]


def each(*actions: str, **fields: object) -> list[dict[str, object]]:
    """The fields of a job for each action."""
    return [{"what": what, "number": number, **fields} for number, what in enumerate(actions)]
