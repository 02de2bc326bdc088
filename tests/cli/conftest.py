"""Real processes of the command line, run in the folder of small apps."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

import queuey_sync
from tests.support.waiting import eventually

collect_ignore = ["apps"]

APPS = Path(__file__).parent / "apps"
_PACKAGE = Path(queuey_sync.__file__).parents[1]


class Running:
    """A command that was started."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._folder = folder

    @property
    def out(self) -> str:
        """What it has written to standard output so far."""
        return (self._folder / "out").read_text()

    @property
    def err(self) -> str:
        """What it has written to standard error so far."""
        return (self._folder / "err").read_text()

    @property
    def err_lines(self) -> list[str]:
        """The lines of `err`."""
        return self.err.splitlines()

    def says(self, text: str) -> None:
        """Wait until it has written this to standard error."""

        def said() -> bool:
            if self.process.poll() is not None and text not in self.err:
                pytest.fail(f"ended before it said {text!r}; standard error:\n{self.err}")
            return text in self.err

        eventually(said, 20, f"{text!r} on standard error")

    def send(self, signum: int) -> None:
        """Send a signal to the command itself."""
        os.kill(self.pid, signum)

    def wait(self, seconds: float = 30) -> int:
        """The exit code; negative for a signal that ended it, as `subprocess` has it."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s; standard error:\n{self.err}")


class Commands:
    """Starts commands, each with an environment that holds nothing of ours but what is given."""

    apps = APPS
    """The folder that they run in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Running] = []
        self.marks = folder / "marks"
        self.environment = {
            "SHOP_MARKS": str(self.marks),
            "PYTHONPATH": str(_PACKAGE),
            "PYTHONUNBUFFERED": "",  # or what is lost with a buffer would never be seen
        }

    def start(
        self,
        *arguments: str,
        python: tuple[str, ...] = ("-m", "queuey_sync"),
        under: tuple[str, ...] = (),
        stdin: "int | IO[bytes]" = subprocess.DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
        **environment: str,
    ) -> Running:
        """Start ``queuey-sync`` with these arguments.

        Args:
            *arguments: What follows the command's name.
            python: What Python is told to run in its place.
            under: A command that runs it.
            stdin: Its standard input.
            stdout: Its standard output; a file by default, for `Running.out`.
            stderr: Its standard error; a file by default, for `Running.err`.
            **environment: Variables to add.
        """
        folder = self._folder / str(len(self._started))
        folder.mkdir()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [*under, sys.executable, *python, *arguments],
                cwd=self.apps,
                env={**os.environ, **self.environment, **environment},
                stdin=stdin,
                stdout=out if stdout is None else stdout,
                stderr=err if stderr is None else stderr,
            )
        running = Running(process, folder)
        self._started.append(running)
        return running

    def run(self, *arguments: str, **settings: Any) -> Running:
        """Run a command to its end."""
        running = self.start(*arguments, **settings)
        running.wait()
        return running

    def marked(self, *texts: str, seconds: float = 20) -> None:
        """Wait until handlers have left exactly these marks, in any order."""

        def left() -> bool:
            found = self.marks.read_text().splitlines() if self.marks.exists() else []
            assert sorted(texts) == sorted(found)
            return True

        eventually(left, seconds)

    def close(self) -> None:
        """End what still runs."""
        for running in self._started:
            if running.process.poll() is None:
                if os.getpgid(running.process.pid) == running.process.pid:
                    os.killpg(running.process.pid, signal.SIGKILL)  # it runs under something else
                running.send(signal.SIGKILL)
                running.process.kill()
                running.process.wait()
            for pipe in (running.process.stdin, running.process.stdout):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    """Starts commands; those that still run are ended with the test."""
    started = Commands(tmp_path)
    yield started
    started.close()


@pytest.fixture
def shop(commands: Commands, amqp_url: str, queue_prefix: str) -> Commands:
    """The same, for a shop with fresh queues on a real broker."""
    commands.environment |= {"QUEUEY_URL": amqp_url, "SHOP_PREFIX": queue_prefix}
    return commands
