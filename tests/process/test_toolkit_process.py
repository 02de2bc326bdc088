"""The toolkit in a process of its own that gets real signals."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.waiting import eventually

README_LOOP = """
import logging, sys, time
from queuey_sync.shutdown import Backoff, Shutdown

logging.basicConfig(level=logging.INFO, format="%(message)s")

def say(text):
    print(text, flush=True)

def do_some_work():
    say("working")
    end = time.monotonic() + 1
    while time.monotonic() < end:
        time.sleep(0.01)
    say("worked")

def fail():
    say("failing")
    raise OSError("gone")

work = {"work": do_some_work, "fail": fail}[sys.argv[1]]
shutdown = Shutdown()
shutdown.listen_for_signals()
watcher = shutdown.watcher()
backoff = Backoff(initial="15m")

while watcher.is_running():
    try:
        work()
    except OSError:
        backoff.failed()
        if not backoff.wait(watcher):
            break
    else:
        backoff.succeeded()
say("left")
"""

LISTENS_TWICE = """
import signal, threading
from queuey_sync.shutdown import Shutdown

shutdown = Shutdown()
shutdown.listen_for_signals()
first = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), threading.enumerate()]
shutdown.listen_for_signals()
second = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), threading.enumerate()]
print("unchanged" if first == second else "changed")
"""

FORKED_LOOP = """
import os, sys
from queuey_sync.shutdown import Shutdown

shutdown = Shutdown()
shutdown.listen_for_signals()
watcher = shutdown.watcher()
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
    watcher.wait("60s")
    os._exit(17 if watcher.is_stopping() else 1)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status), "parent", watcher.is_running(), flush=True)
watcher.wait("60s")
"""

Process = subprocess.Popen[str]
Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python on a script, and leave no process behind."""
    with ExitStack() as cleanup:

        def start(script: str, *arguments: str) -> Process:
            process = cleanup.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", script, *arguments],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    cwd=Path(__file__).parents[2],
                )
            )
            cleanup.callback(process.kill)
            return process

        yield start


def read_line(process: Process) -> str:
    """Read the next line that the process says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_asleep(process: Process) -> bool:
    """Say that the main thread of a process sleeps in the kernel."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


def seconds_until_exit(process: Process) -> float:
    """Wait for the end of a process."""
    start = time.monotonic()
    process.wait(timeout=10)
    return time.monotonic() - start


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_s8_a_signal_lets_the_unit_of_work_finish(start: Start, signum: int) -> None:
    """S8: the unit of work that runs is finished, no other starts, the process exits 0."""
    process = start(README_LOOP, "work")
    assert "working" == read_line(process)
    process.send_signal(signum)
    assert seconds_until_exit(process) < 2
    rest, errors = process.communicate()
    assert (0, ["worked", "left"]) == (process.returncode, rest.split())
    name = signal.Signals(signum).name
    assert [f"received {name}: stopping at the next opportunity"] == errors.splitlines()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_s8_a_signal_ends_a_wait_of_fifteen_minutes(start: Start) -> None:
    """S8: the process waits out a long delay and still leaves at once, with the reason logged."""
    process = start(README_LOOP, "fail")
    assert "failing" == read_line(process)
    eventually(lambda: is_asleep(process))
    process.send_signal(signal.SIGTERM)
    assert seconds_until_exit(process) < 2
    rest, errors = process.communicate()
    assert (0, ["left"]) == (process.returncode, rest.split())
    assert ["received SIGTERM: stopping at the next opportunity"] == errors.splitlines()


def test_a_second_signal_is_logged_and_changes_nothing(start: Start) -> None:
    """Work in flight is not cut by impatience: the exit is as clean as after one signal."""
    process = start(README_LOOP, "work")
    assert "working" == read_line(process)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("received SIGTERM: stopping")
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=10)
    assert (0, ["worked", "left"]) == (process.returncode, rest.split())
    assert ["received SIGINT again: already stopping, work in flight is not cut"] == (
        errors.splitlines()
    )


def test_listening_twice_changes_nothing(start: Start) -> None:
    """The second call installs no handler and starts no thread; the process ends by itself."""
    output, errors = start(LISTENS_TWICE).communicate(timeout=10)
    assert ("unchanged\n", "") == (output, errors)


def test_a_forked_child_hears_its_own_signals(start: Start) -> None:
    """After a fork, parent and child are stopped each by its own signals, at once."""
    parent = start(FORKED_LOOP)
    os.kill(int(read_line(parent)), signal.SIGTERM)
    assert "child 17 parent True" == read_line(parent)
    parent.terminate()
    assert seconds_until_exit(parent) < 2
    assert 0 == parent.returncode


_INTERRUPTED_WAITS = """
import random, signal
from queuey_sync import Shutdown

for number in range(1500):
    shutdown = Shutdown()
    signal.signal(signal.SIGALRM, lambda *_: shutdown.stop())
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1e-4))
    assert shutdown.watcher().wait(20), number
"""


def test_a_stop_may_interrupt_a_wait_anywhere() -> None:
    """A real signal at a random moment of a wait neither deadlocks nor is missed."""
    subprocess.run([sys.executable, "-c", _INTERRUPTED_WAITS], check=True, timeout=60)
