"""The status file of a real worker, and what ``health`` and ``jobs`` make of it."""

import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from queuey_sync.observe.status import Status
from tests.cli.conftest import Commands, Running
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


def _worker(shop: Commands, *options: str, **settings: Any) -> Running:
    return shop.start("worker", "shop:app", "--status-file", str(_file(shop)), *options, **settings)


def _file(shop: Commands) -> Path:
    return shop.marks.with_name("status")


def _health(shop: Commands, *options: str) -> tuple[int, str]:
    ended = shop.run("health", *options, str(_file(shop)))
    return ended.wait(), ended.out + ended.err


def _becomes(shop: Commands, live: int, ready: int, text: str, seconds: float = 15) -> None:
    def seen() -> bool:
        code, said = _health(shop)
        assert (live, ready) == (code, _health(shop, "--ready")[0]), said
        assert text in said + _health(shop, "--ready")[1]
        return True

    eventually(seen, seconds)


def test_a_worker_that_works(shop: Commands) -> None:
    """It is live and ready, and tells what runs and what was done."""
    assert 0 == shop.run("enqueue", "shop:app", "shop.Notify", '{"to":"ada"}').wait()
    assert 0 == shop.run("enqueue", "shop:app", "shop.Pack", '{"seconds":600}').wait()
    worker = _worker(shop)
    shop.marked("start", "told ada")
    _becomes(shop, 0, 0, "is working; running jobs: 1")
    document = json.loads(shop.run("jobs", "--json", str(_file(shop))).out)
    (job,) = document["jobs"]
    assert ("shop.Pack", 1) == (job["job_type"], job["attempt"])
    assert job["seconds"] > 0
    assert worker.pid == document["pid"]
    post = f"{shop.environment['SHOP_PREFIX']}.post"
    assert 1 == document["counts"][post]["succeeded"]
    shown = shop.run("jobs", str(_file(shop))).out
    for text in ("shop.Pack", "1 succeeded", "1 of 6 slots have a job", "settle failures: 0"):
        assert text in shown
    worker.send(signal.SIGKILL)
    _becomes(shop, 1, 1, "has written nothing for")


def test_a_worker_that_is_frozen(shop: Commands) -> None:
    """A process that stands still is not live within 15 s, and live again when it goes on."""
    worker = _worker(shop)
    _becomes(shop, 0, 0, "is working")
    worker.send(signal.SIGSTOP)
    _becomes(shop, 1, 1, "has written nothing for")
    worker.send(signal.SIGCONT)
    _becomes(shop, 0, 0, "is working")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait()
    _becomes(shop, 1, 1, "has stopped")


def test_a_worker_that_connects_again(shop: Commands) -> None:
    """It is well, and takes no jobs; without --reconnect it is gone."""
    with Proxy(shop.environment["QUEUEY_URL"]) as proxy:
        worker = _worker(shop, "--reconnect", QUEUEY_URL=proxy.url)
        _becomes(shop, 0, 0, "is working")
        proxy.refuse()
        _becomes(shop, 0, 1, "is connecting")
        proxy.accept()
        _becomes(shop, 0, 0, "is working", 40)
        worker.send(signal.SIGTERM)
        assert 0 == worker.wait()


def test_a_worker_that_finishes_its_jobs(shop: Commands) -> None:
    """While it stops it is well, and takes no more."""
    assert 0 == shop.run("enqueue", "shop:app", "shop.Pack", '{"seconds":4}').wait()
    worker = _worker(shop)
    shop.marked("start")
    worker.send(signal.SIGTERM)
    _becomes(shop, 0, 1, "is stopping", 4)
    assert 0 == worker.wait()


def test_slots_that_hang(shop: Commands) -> None:
    """When all of them are held over their time limit, the worker ends with 9, and says why."""
    assert 0 == shop.run("enqueue", "shop:app", "shop.Hang", "{}").wait()
    worker = _worker(shop, "-c", "1", "--job-timeout", "1s")
    assert 9 == worker.wait()
    _becomes(shop, 1, 1, "has stopped")


def test_a_status_that_cannot_be_written(shop: Commands) -> None:
    """It is told once, and jobs go on."""
    _file(shop).mkdir()
    worker = _worker(shop)
    worker.says("the status file cannot be written: ")
    assert 0 == shop.run("enqueue", "shop:app", "shop.Notify", '{"to":"ada"}').wait()
    shop.marked("told ada")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait()
    assert 1 == worker.err.count("the status file cannot be written")


@pytest.mark.parametrize("command", ["health", "jobs"])
def test_what_is_no_status(commands: Commands, tmp_path: Path, command: str) -> None:
    """One line, and a failure."""
    file = tmp_path / "other"
    for content in ("", "{}", "[]", '{"jobs": [1]}'):
        file.write_text(content)
        ended = commands.run(command, str(file))
        assert (1, 1) == (ended.wait(), len(ended.err_lines))
        assert "is no status file of a worker" in ended.err
    ended = commands.run(command, str(tmp_path / "nowhere"))
    assert (1, True) == (ended.wait(), "No such file" in ended.err)
    assert 2 == commands.run(command).wait()


def test_both_questions_at_once(commands: Commands) -> None:
    """They are two."""
    assert 2 == commands.run("health", "--live", "--ready", "status").wait()


def test_systemd_is_told(shop: Commands, tmp_path: Path) -> None:
    """When the worker has its queues, and when it begins to stop."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(20)
        worker = _worker(shop, NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert b"READY=1" == notified.recv(100)
        worker.send(signal.SIGTERM)
        assert b"STOPPING=1" == notified.recv(100)
        assert 0 == worker.wait()


@pytest.mark.parametrize(
    ("changes", "live", "ready"),
    [
        ({}, None, None),
        ({"overdue": 1}, None, None),
        ({"overdue": 2}, "all 2 slots", "all 2 slots"),
        ({"turned": -100.0}, "stood still", "stood still"),
        ({"state": "connecting", "turned": -100.0}, None, "is connecting"),
        ({"error": "boom"}, "ends: boom", "ends: boom"),
        ({"state": "stopping"}, None, "is stopping"),
        ({"state": "stopped"}, "has stopped", "has stopped"),
        ({"written": -30.0}, "nothing for", "nothing for"),
        ({"written": 30.0}, "nothing for", "nothing for"),
        ({"state": "starting", "written": -30.0}, None, "is starting"),
        ({"state": "starting", "written": -300.0}, "nothing for", "nothing for"),
    ],
    ids=str,
)
def test_what_each_status_means(
    changes: dict[str, Any], live: str | None, ready: str | None
) -> None:
    """Times are given as seconds from now; one in the future is of an earlier boot."""
    now = time.monotonic()
    fields = {"state": "working", "written": 0.0, "turned": 0.0, "concurrency": 2, **changes}
    times = {name: now + value for name, value in fields.items() if isinstance(value, float)}
    status = Status(pid=7, **{**fields, **times})
    for reason, expected in (
        (status.why_not_live(now), live),
        (status.why_not_ready(now), ready),
    ):
        assert (reason is None) == (expected is None)
        assert expected is None or (reason is not None and expected in reason)


@pytest.mark.slow
def test_a_busy_worker_is_never_called_dead(commands: Commands, tmp_path: Path) -> None:
    """Eight threads that compute, on a machine that has other things to do as well."""
    file = str(tmp_path / "status")
    others = [commands.start(python=("-c", "while True: pass")) for _ in range(2)]
    worker = commands.start("worker", "busy:app", "--status-file", file, BUSY_SECONDS="12")
    eventually(lambda: commands.run("health", "--ready", file).wait() == 0, 20)
    looks = 0
    while len(json.loads(commands.run("jobs", "--json", file).out)["jobs"]) == 8:
        ended = commands.run("health", "--ready", file)
        assert 0 == ended.wait(), ended.out
        looks += 1
    assert looks > 5
    for other in others:
        other.send(signal.SIGKILL)
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(60)
