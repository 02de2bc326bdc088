"""Tests of the private nodes themselves: everything else that uses a broker stands on them."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pika
import pika.exceptions
import pytest

from tests.conftest import FreshQueues
from tests.support.broker import Broker, is_alive
from tests.support.rabbitmq import BrokerMissing, install_rabbitmq
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "broker"


def _publish_one(url: str, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))


def _count(url: str, queue: str) -> int:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        return connection.channel().queue_declare(queue, passive=True).method.message_count


@pytest.mark.slow
def test_a_killed_node_comes_back_with_its_data(private_broker: Broker) -> None:
    """A node that was killed starts again at the same URL and still holds what it had confirmed."""
    _publish_one(private_broker.url, "kept")
    # A confirm says that the message is on disk; the list of queues follows a moment later.
    private_broker.ctl("eval", "mnesia:sync_log().")
    private_broker.kill()
    assert not private_broker.is_running()
    private_broker.start()
    assert _count(private_broker.url, "kept") == 1


def test_ctl_and_api_speak_to_this_node(broker: Broker, fresh_queue: FreshQueues) -> None:
    """Both ways of asking the node see a queue that was just declared."""
    name = fresh_queue("seen")
    _publish_one(broker.url, name)
    assert broker.api(f"queues/%2F/{name}")["name"] == name
    assert name in broker.ctl("list_queues", "name")


@pytest.mark.slow
@pytest.mark.usefixtures("broker")  # or it is skipped
def test_a_node_dies_with_its_killed_owner() -> None:
    """Nothing is left running when the process that started a node is killed."""
    code = (
        "import time; from tests.support.broker import Broker\n"
        "broker = Broker(); broker.start(); print(*broker.pids(), broker.folder, flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        *pids, folder = owner.stdout.readline().split()
        owner.kill()
    assert len(pids) == 2
    eventually(lambda: not any(is_alive(int(pid)) for pid in pids), message="the node is gone")
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.usefixtures("broker")  # or it is skipped
def test_a_started_node_runs_until_it_is_stopped(tmp_path: Path) -> None:
    """`start` prints a URL and leaves a node behind, `status` finds it, `stop` ends it."""

    def run(command: str) -> tuple[int, str]:
        done = subprocess.run(
            [SCRIPT, command, "--dir", tmp_path], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.strip()

    started, url = run("start")
    try:
        assert started == 0
        assert run("status") == (0, url)
        _publish_one(url, "q")
    finally:
        stopped, _ = run("stop")
    assert stopped == 0
    assert run("status") == (1, "stopped")


@pytest.mark.slow
@pytest.mark.usefixtures("broker")  # or it is skipped
@pytest.mark.parametrize(
    ("signals", "code"),
    [([], 7), ([signal.SIGTERM], 128 + signal.SIGTERM)],
    ids=["by itself", "SIGTERM"],
)
def test_run_gives_a_command_a_node_and_takes_its_exit_code(
    signals: list[signal.Signals], code: int
) -> None:
    """`run` sets QUEUEY_TEST_URL, passes SIGTERM on, and stops the node after the command."""
    last = "exec sleep 600" if signals else "exit 7"
    command: list[str | Path] = [
        SCRIPT,
        "run",
        "--",
        "sh",
        "-c",
        f'echo "$QUEUEY_TEST_URL"; exec 1>&-; {last}',
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        url = runner.stdout.readline().strip()
        for number in signals:
            runner.send_signal(number)
        assert runner.wait() == code
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(url))


def test_a_missing_rabbitmq_is_a_clear_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without RabbitMQ and without root, the error says which variable gives the tests a broker."""
    monkeypatch.setattr("tests.support.rabbitmq._DEBIAN_SBIN", tmp_path)
    monkeypatch.setattr("tests.support.rabbitmq._GIVEN_SBIN", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(BrokerMissing, match="QUEUEY_TEST_URL"):
        install_rabbitmq()


@pytest.mark.usefixtures("broker")  # or it is skipped
@pytest.mark.parametrize("command", ["start", "status", "stop", "run"])
@pytest.mark.parametrize("name", ["a-file", "a-file/below", "x" * 300])
def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path, command: str, name: str) -> None:
    """A --dir that cannot be a node's folder gives one line and code 1, for every command."""
    (tmp_path / "a-file").touch()
    rest = ["--", "true"] if command == "run" else []
    code, text = _fail(command, "--dir", str(tmp_path / name), *rest)
    assert code == 1
    assert len(text) == 1
    assert "--dir" in text[0]


@pytest.mark.parametrize("command", ["status", "stop"])
def test_a_folder_without_a_node_is_not_taken_for_a_stopped_one(
    tmp_path: Path, command: str
) -> None:
    """A mistyped --dir is an error, rather than a node that was stopped."""
    code, text = _fail(command, "--dir", str(tmp_path))
    assert code == 1
    assert text == [f"scripts/broker: no node was ever started in {tmp_path}; see --dir"]


def test_a_command_that_does_not_exist_needs_no_node() -> None:
    """`run` looks for its command before it starts anything, and says so as a shell does."""
    assert _fail("run", "--", "no-such-command") == (
        127,
        ["scripts/broker: no such command: no-such-command"],
    )


@pytest.mark.slow
@pytest.mark.usefixtures("broker")  # or it is skipped
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--conf", "no.key=1"), "  - Conf file attempted to set unknown variable: no.key"),
        (("--vm-args", "+Q 1"), "bad number of ports 1"),
    ],
    ids=["conf", "vm-args"],
)
def test_a_node_that_does_not_start_says_why(
    tmp_path: Path, arguments: tuple[str, str], complaint: str
) -> None:
    """RabbitMQ's own complaint is shown, without the reports that it prints around it."""
    code, text = _fail("start", "--dir", str(tmp_path), *arguments)
    assert code == 1
    assert complaint in text
    assert len(text) < 12


def _fail(*arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()
