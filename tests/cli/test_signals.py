"""What signals do to real processes: in each state of a worker, twice, and as process 1."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.cli.conftest import Commands, Running
from tests.support.waiting import eventually

_STOPPING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
_EACH_SIGNAL = pytest.mark.parametrize("signum", _STOPPING, ids=lambda signum: signum.name)


class SilentBroker:
    """Accepts connections, and says nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(20)
        self._accepted: list[socket.socket] = []
        port = self._listener.getsockname()[1]
        self.url = f"amqp://ada:S3cretWord@127.0.0.1:{port}/"

    def accept(self) -> None:
        """Wait for a connection."""
        connection, _ = self._listener.accept()
        self._accepted.append(connection)

    def close(self) -> None:
        """Leave."""
        for connection in (*self._accepted, self._listener):
            connection.close()


@pytest.fixture
def silent_broker() -> Iterator[SilentBroker]:
    """A broker that accepts a connection and then stays silent."""
    with contextlib.closing(SilentBroker()) as broker:
        yield broker


def _waiting(shop: Commands) -> int:
    """How many jobs wait on the queue of orders."""
    queue = f"{shop.environment['SHOP_PREFIX']}.orders"
    with pika.BlockingConnection(pika.URLParameters(shop.environment["QUEUEY_URL"])) as connection:
        return connection.channel().queue_declare(queue, passive=True).method.message_count


def _pack(shop: Commands, seconds: float) -> None:
    assert 0 == shop.run("enqueue", "shop:app", "shop.Pack", f'{{"seconds":{seconds}}}').wait()


@_EACH_SIGNAL
def test_m10_an_idle_worker_ends_at_once(shop: Commands, signum: int) -> None:
    """M10: without a job a worker exits 0 within 2 s of a signal."""
    worker = shop.start("worker", "shop:app")
    worker.says("working on")
    worker.send(signum)
    assert 0 == worker.wait(2), worker.err
    assert f"received {signal.Signals(signum).name}: stopping" in worker.err


@_EACH_SIGNAL
def test_m10_a_busy_worker_finishes_its_job(shop: Commands, signum: int) -> None:
    """M10: a job that runs when the signal comes is finished and acked; the worker exits 0."""
    _pack(shop, 2)
    worker = shop.start("worker", "shop:app")
    shop.marked("start")
    worker.send(signum)
    assert 0 == worker.wait(10), worker.err
    shop.marked("start", "end")
    assert 0 == _waiting(shop)
    assert "settle failures: 0" in worker.err


@_EACH_SIGNAL
def test_13_a_second_signal_ends_a_worker_now(shop: Commands, signum: int) -> None:
    """Bug 13: a second signal ends a busy worker within 2 s, with 128+n, and the job comes back."""
    _pack(shop, 600)
    worker = shop.start("worker", "shop:app")
    shop.marked("start")
    worker.send(signal.SIGTERM)
    worker.says("stopping: waiting")
    worker.send(signum)
    assert 128 + signum == worker.wait(2), worker.err
    eventually(lambda: _waiting(shop) == 1, message="the job comes back")


def test_13_an_output_that_nobody_reads_does_not_delay_the_end(commands: Commands) -> None:
    """A second signal ends a worker whose standard output cannot be flushed."""
    worker = commands.start("worker", "blocked:app", QUEUEY_URL="memory:")
    commands.marked("start")
    worker.send(signal.SIGTERM)
    worker.says("stopping: waiting")
    worker.send(signal.SIGTERM)
    assert 128 + signal.SIGTERM == worker.wait(2)


@_EACH_SIGNAL
@pytest.mark.parametrize("swallow", [{}, {"SWALLOW": "1"}], ids=["plain", "swallowed"])
def test_a_signal_while_the_app_is_imported(
    commands: Commands, silent_broker: SilentBroker, signum: int, swallow: dict[str, Any]
) -> None:
    """A worker that is still importing exits 0, even if the app's code swallows exceptions."""
    worker = commands.start("worker", "slow:app", "--url", silent_broker.url, **swallow)
    worker.says("importing")
    worker.send(signum)
    assert 0 == worker.wait(2), worker.err
    assert "Traceback" not in worker.err


@pytest.mark.parametrize(("command", "code"), [("worker", 0), ("declare", 128 + signal.SIGINT)])
@pytest.mark.parametrize("take", [{}, {"TAKE": "1"}], ids=["plain", "taken"])
def test_ctrl_c_while_the_app_is_imported(
    commands: Commands, command: str, code: int, take: dict[str, Any]
) -> None:
    """It ends each command as any first signal does, though the app has put a handler there."""
    ended = commands.start(command, "slow:app", "--url", "memory:", **take)
    ended.says("importing")
    ended.send(signal.SIGINT)
    assert code == ended.wait(2), ended.err
    assert "Traceback" not in ended.err
    assert "queuey-sync: received SIGINT: leaving" == ended.err_lines[-1]


@_EACH_SIGNAL
def test_a_signal_while_connecting(
    commands: Commands, silent_broker: SilentBroker, signum: int
) -> None:
    """A worker that a silent broker keeps waiting exits 0 within 2 s."""
    worker = commands.start("worker", "shop:app", "--url", silent_broker.url)
    silent_broker.accept()
    worker.send(signum)
    assert 0 == worker.wait(2), worker.err
    assert [f"queuey-sync: received {signal.Signals(signum).name}: leaving"] == worker.err_lines


@pytest.mark.parametrize("command", [["declare"], ["enqueue"]], ids=lambda command: command[0])
def test_a_command_that_is_interrupted_has_not_succeeded(
    commands: Commands, silent_broker: SilentBroker, command: list[str]
) -> None:
    """A first signal ends the other commands within 2 s, with 128+n: they did not succeed."""
    job = ["shop.Notify", '{"to":"ada"}'] if command == ["enqueue"] else []
    ended = commands.start(*command, "shop:app", *job, "--url", silent_broker.url)
    silent_broker.accept()
    ended.send(signal.SIGINT)
    assert 128 + signal.SIGINT == ended.wait(2), ended.err
    assert "Traceback" not in ended.err


def test_an_interrupted_input_says_what_may_have_been_enqueued(
    commands: Commands, silent_broker: SilentBroker
) -> None:
    """When a signal cuts the publishing of lines short, the lines in doubt are named."""
    arguments = ("enqueue", "shop:app", "shop.Notify", "--url", silent_broker.url)
    ended = commands.start(*arguments, stdin=subprocess.PIPE)
    assert ended.process.stdin is not None
    ended.process.stdin.write(b'{"to":"a"}\n\n{"to":"b"}\n')
    ended.process.stdin.close()
    silent_broker.accept()
    ended.send(signal.SIGINT)
    assert 128 + signal.SIGINT == ended.wait(2), ended.err
    assert "queuey-sync: 0 jobs enqueued, and some of lines 1-3 may be" == ended.err_lines[-1]


def test_atexit_works_when_nothing_hangs(commands: Commands) -> None:
    """A worker whose handlers have all ended leaves as any program of Python does."""
    worker = commands.start("worker", "talks:app", QUEUEY_URL="memory:")
    commands.marked("told ada")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(2)
    assert "goodbye" == worker.err_lines[-1]


def test_an_app_cannot_take_the_signals_away(commands: Commands) -> None:
    """What an app does with the signals when it is imported is undone."""
    worker = commands.start("worker", "fed:app", QUEUEY_URL="memory:")
    worker.says("working on")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(2), worker.err


def test_nohup_is_respected(commands: Commands) -> None:
    """A worker that was started to ignore SIGHUP does so."""
    worker = commands.start(
        "worker", "shop:app", QUEUEY_URL="memory:", under=("env", "--ignore-signal=HUP")
    )
    worker.says("working on")
    worker.send(signal.SIGHUP)
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(2), worker.err
    assert "SIGHUP" not in worker.err


@pytest.fixture
def process_1(commands: Commands) -> Commands:
    """Starts commands as process 1 of a namespace; skipped where that is not allowed."""
    try:
        subprocess.run(["unshare", "--fork", "--pid", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs root and unshare, to start a process as process 1 of a namespace")
    return commands


def _start_as_process_1(commands: Commands, *arguments: str, **environment: Any) -> Running:
    unshare = ("unshare", "--fork", "--pid", "--kill-child=KILL", "--")
    running = commands.start(*arguments, under=unshare, **environment)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")

    def python() -> int:
        pids = children.read_text().split()
        if pids and b"queuey_sync" in Path(f"/proc/{pids[0]}/cmdline").read_bytes().split(b"\0"):
            return int(pids[0])
        return 0

    running.pid = eventually(lambda: children.exists() and python())
    return running


def _await_running_time(pid: int, seconds: float) -> None:
    """Wait until a process has run for so long: its age, but for what other processes took.

    Starting is all computing, so on a machine with nothing else to do the two are the same.
    """
    times = Path(f"/proc/{pid}/schedstat")
    eventually(lambda: int(times.read_text().split()[0]) >= seconds * 1e9)


@_EACH_SIGNAL
def test_10_process_1_hears_a_signal_just_after_its_start(
    process_1: Commands, silent_broker: SilentBroker, signum: int
) -> None:
    """Bug 10: process 1, which no signal ends by default, exits 0 for one 50 ms after its start."""
    worker = _start_as_process_1(process_1, "worker", "shop:app", "--url", silent_broker.url)
    _await_running_time(worker.pid, 0.05)
    worker.send(signum)
    assert 0 == worker.wait(2), worker.err


def test_10_process_1_without_a_broker(process_1: Commands, silent_broker: SilentBroker) -> None:
    """Bug 10: process 1 exits 0 within 2 s while the broker does not answer."""
    worker = _start_as_process_1(process_1, "worker", "shop:app", "--url", silent_broker.url)
    silent_broker.accept()
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(2), worker.err


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_10_process_1_finishes_its_job(process_1: Commands, shop: Commands, signum: int) -> None:
    """Bug 10: process 1 finishes the job that runs, acks it and exits 0."""
    _pack(shop, 5)
    worker = _start_as_process_1(shop, "worker", "shop:app")
    shop.marked("start")
    worker.send(signum)
    assert 0 == worker.wait(10), worker.err
    shop.marked("start", "end")
    assert 0 == _waiting(shop)


def test_13_process_1_and_a_second_signal(process_1: Commands, shop: Commands) -> None:
    """A second signal ends process 1 too, and its job comes back."""
    _pack(shop, 600)
    worker = _start_as_process_1(shop, "worker", "shop:app")
    shop.marked("start")
    worker.send(signal.SIGTERM)
    worker.says("stopping: waiting")
    worker.send(signal.SIGINT)
    assert 128 + signal.SIGINT == worker.wait(2), worker.err
    eventually(lambda: _waiting(shop) == 1, message="the job comes back")


def test_10_handlers_come_before_heavy_imports(commands: Commands) -> None:
    """Bug 10: when the handlers are installed, nothing that takes time has been imported."""
    spy = (
        "import signal, sys\n"
        "real = signal.signal\n"
        "def spy(*arguments):\n"
        "    heavy = {'msgspec', 'pika', 'click', 'tenacity', 'logging', 'threading'}\n"
        "    print(sorted(heavy & set(sys.modules)))\n"
        "    return real(*arguments)\n"
        "signal.signal = spy\n"
        "sys.argv[1:] = ['--version']\n"
        "from queuey_sync.__main__ import main; main()"
    )
    ended = commands.run(python=("-c", spy))
    first, *_ = ended.out.splitlines()
    assert "[]" == first


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_usr1_tells_what_a_worker_does(shop: Commands, pool: str) -> None:
    """The jobs that run and the stacks, in one record; nothing stops."""
    _pack(shop, 2)
    worker = shop.start("worker", "shop:app", "--pool", pool, "-c", "2")
    shop.marked("start")
    os.kill(worker.pid, signal.SIGUSR1)
    worker.says("1 of 2 slots have a job")
    worker.says("thread queuey-consumer")
    assert "(shop.Pack) on " in worker.err
    assert ("time.sleep(job.seconds)" in worker.err) == (pool == "thread")
    shop.marked("start", "end")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait()


def test_usr1_before_there_is_a_worker(commands: Commands, silent_broker: SilentBroker) -> None:
    """It kills nobody."""
    worker = commands.start("worker", "slow:app", "--url", silent_broker.url)
    worker.says("importing")
    os.kill(worker.pid, signal.SIGUSR1)
    worker.says("received SIGUSR1: no worker runs yet")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait()
