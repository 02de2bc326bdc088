"""``queuey-sync drain`` as real processes: what it says, its exit codes, and never two at once."""

import contextlib
import json
import os
import pty
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.cli.conftest import Commands
from tests.support.waiting import eventually


def _fill(shop: Commands, *jobs: dict[str, object], times: int = 1) -> None:
    """Enqueue jobs of the batch app."""
    lines = "\n".join(json.dumps(job) for job in jobs for _ in range(times))
    path = shop.marks.with_name("jobs")
    path.write_text(lines + "\n")
    with path.open("rb") as file:
        assert 0 == shop.run("enqueue", "batch:app", "batch.Do", "-", stdin=file).wait()


def _summary(shop: Commands, *options: str) -> tuple[int, dict[str, Any]]:
    drained = shop.run("drain", "batch:app", "--json", *options)
    return drained.wait(), json.loads(drained.out)


def _marks(shop: Commands) -> Counter[str]:
    return Counter(shop.marks.read_text().splitlines() if shop.marks.exists() else [])


def test_success_is_silent_without_a_terminal(shop: Commands) -> None:
    """Cron mails whatever is written."""
    _fill(shop, {"do": "nothing"}, {"do": "follow"}, times=30)
    drained = shop.run("drain", "batch:app")
    assert (0, "", "") == (drained.wait(), drained.out, drained.err)
    assert {"nothing": 30, "follow": 30, "followed": 30} == _marks(shop)


def test_an_empty_queue_ends_it_at_once(shop: Commands) -> None:
    """There is nothing to wait for."""
    code, summary = _summary(shop)
    assert (0, "empty", 0) == (code, summary["ended_by"], summary["succeeded"])
    assert summary["seconds"] < 3


def test_many_jobs_with_a_large_prefetch(shop: Commands) -> None:
    """All of them run, each once, and none is left unacked."""
    _fill(shop, {"do": "nothing"}, times=5_000)
    code, summary = _summary(shop, "--concurrency", "4")
    assert (0, 5_000, 0) == (code, summary["succeeded"], summary["left"])
    assert {"nothing": 5_000} == _marks(shop)
    assert 0 == _summary(shop)[1]["succeeded"]


def test_the_summary_tells_each_end_by_queue(shop: Commands) -> None:
    """One JSON document, with totals and the same for each queue."""
    _fill(shop, {"do": "nothing"}, {"do": "fail"}, {"do": "defer"}, {"do": "die"}, {"do": "follow"})
    code, summary = _summary(shop)
    counts = {"succeeded": 2, "retried": 1, "deferred": 1, "dead": 1, "left": 0, "held": None}
    first = f"{shop.environment['SHOP_PREFIX']}.first"
    second = f"{shop.environment['SHOP_PREFIX']}.second"
    nothing = dict.fromkeys(("retried", "deferred", "dead", "left"), 0)
    assert {first: counts, second: {"succeeded": 1, "held": None, **nothing}} == summary["queues"]
    assert (0, "empty") == (code, summary["ended_by"])
    assert {**counts, "succeeded": 3}.items() <= summary.items()


def test_what_is_deferred_is_left_to_a_later_run(shop: Commands) -> None:
    """It does not wait for it, unless it is asked to."""
    _fill(shop, {"do": "defer shortly"})
    assert 0 == shop.run("drain", "batch:app").wait()
    assert {"defer shortly": 1} == _marks(shop)

    def run_again() -> bool:
        return bool(_summary(shop)[1]["succeeded"] == 1)

    eventually(run_again, 20)
    assert {"defer shortly": 2} == _marks(shop)


def test_it_waits_for_what_it_deferred_if_asked(shop: Commands) -> None:
    """Within the time given; retries as well."""
    _fill(shop, {"do": "defer shortly"}, {"do": "fail"})
    code, summary = _summary(shop, "--wait-held", "20s")
    assert (0, 1, 1, 1, 1) == (
        code,
        summary["succeeded"],
        summary["deferred"],
        summary["retried"],
        summary["dead"],
    )
    assert 1 < summary["seconds"] < 15


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--fail-on-dead",), 8)])
def test_dead_letters_fail_it_only_if_asked(
    shop: Commands, options: tuple[str, ...], code: int
) -> None:
    """They are logged in any case."""
    _fill(shop, {"do": "die"})
    drained = shop.run("drain", "batch:app", *options)
    assert code == drained.wait()
    assert "WARNING" in drained.err
    assert ("1 dead" in drained.err_lines[-1]) == bool(code)


@pytest.mark.parametrize(
    ("options", "ended_by"),
    [(("--max-jobs", "3"), "max-jobs"), (("--max-time", "1s", "-c", "2"), "max-time")],
)
def test_a_limit_leaves_work(shop: Commands, options: tuple[str, ...], ended_by: str) -> None:
    """Exit code 6, and what is left is told."""
    _fill(shop, {"do": "nothing", "seconds": 0.5}, times=20)
    drained = shop.run("drain", "batch:app", *options)
    assert 6 == drained.wait()
    assert f"ended by {ended_by} after" in drained.err_lines[-1]
    code, summary = _summary(shop, "-c", "20")
    assert 0 == code
    assert 20 == sum(_marks(shop).values())
    assert f"{summary['succeeded']} left" in drained.err_lines[-1]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_work(shop: Commands, signum: int) -> None:
    """The running job is finished, the rest goes back, and the exit code is 6."""
    _fill(shop, {"do": "nothing", "seconds": 1}, times=5)
    drained = shop.start("drain", "batch:app", "-c", "1")
    eventually(lambda: _marks(shop))
    drained.send(signum)
    assert 6 == drained.wait()
    assert "ended by signal" in drained.err_lines[-1]
    ran = sum(_marks(shop).values())
    assert 5 - ran == _summary(shop)[1]["succeeded"]


def test_a_signal_with_the_last_job_leaves_nothing(shop: Commands) -> None:
    """Then it did what it was to do."""
    _fill(shop, {"do": "nothing", "seconds": 1})
    drained = shop.start("drain", "batch:app")
    eventually(lambda: _marks(shop))
    drained.send(signal.SIGTERM)
    assert 0 == drained.wait()


def test_a_second_signal_ends_it_now(shop: Commands) -> None:
    """As with a worker."""
    _fill(shop, {"do": "nothing", "seconds": 600})
    drained = shop.start("drain", "batch:app")
    eventually(lambda: _marks(shop))
    drained.send(signal.SIGTERM)
    drained.says("stopping")
    drained.send(signal.SIGTERM)
    assert 143 == drained.wait(5)


def test_a_second_drain_with_the_lock_ends_at_once(shop: Commands, tmp_path: Path) -> None:
    """Exit code 7, before the app is imported; and it says who holds the lock."""
    lock = str(tmp_path / "lock")
    _fill(shop, {"do": "nothing", "seconds": 600})
    first = shop.start("drain", "batch:app", "--lock", lock)
    eventually(lambda: _marks(shop))
    second = shop.run("drain", "no.such.module:app", "--lock", lock)
    assert 7 == second.wait()
    assert [f"queuey-sync: --lock {lock}: held by process {first.pid}"] == second.err_lines
    first.send(signal.SIGKILL)
    first.wait()
    assert 0 == shop.run("drain", "batch:app", "--lock", lock, "-Q", "second").wait()


def test_the_lock_is_free_after_a_good_end(shop: Commands, tmp_path: Path) -> None:
    """Drain after drain."""
    for _ in range(2):
        assert 0 == shop.run("drain", "batch:app", "--lock", str(tmp_path / "lock")).wait()


@pytest.mark.parametrize("lock", ["no/such/folder/lock", "."])
def test_a_lock_that_cannot_be_is_refused(shop: Commands, lock: str) -> None:
    """A mistake on the command line, told in one line."""
    drained = shop.run("drain", "batch:app", "--lock", lock)
    assert 2 == drained.wait()
    assert f"--lock {lock}" in drained.err_lines[0]
    assert 1 == len(drained.err_lines)


def test_a_crontab_line_never_overlaps(shop: Commands, tmp_path: Path) -> None:
    """Drains started on schedule, faster than the queue empties, one at a time; no job is lost."""
    _fill(shop, {"do": "nothing", "seconds": 0.2}, times=30)
    started = []
    options = ("--lock", str(tmp_path / "lock"), "-c", "2")
    for _ in range(6):
        started.append(shop.start("drain", "batch:app", *options))
        time.sleep(0.5)  # the schedule
    codes = [each.wait() for each in started]
    assert {0, 7} == set(codes)
    assert 0 == codes[0]
    assert {"nothing": 30} == _marks(shop)


def test_two_without_a_lock_share_the_work(shop: Commands) -> None:
    """No job runs twice."""
    _fill(shop, {"do": "nothing"}, times=1_000)
    both = [shop.start("drain", "batch:app", "--json") for _ in range(2)]
    assert [0, 0] == [each.wait() for each in both]
    assert {"nothing": 1_000} == _marks(shop)
    assert 1_000 == sum(json.loads(each.out)["succeeded"] for each in both)


def test_a_queue_that_fills_itself_is_ended_by_a_limit(shop: Commands) -> None:
    """It would never end by itself."""
    _fill(shop, {"do": "again"})
    code, summary = _summary(shop, "--max-time", "1s")
    assert (6, "max-time", 1) == (code, summary["ended_by"], summary["left"])
    assert 0 == _summary(shop, "--max-jobs", "1")[1]["dead"]


def test_child_processes_drain_too(shop: Commands) -> None:
    """With --pool process; nothing but the summary is written."""
    _fill(shop, {"do": "nothing"}, {"do": "follow"}, times=10)
    code, summary = _summary(shop, "--pool", "process", "-c", "2")
    assert (0, 30) == (code, summary["succeeded"])


def test_a_broker_that_cannot_be_reached(commands: Commands) -> None:
    """Exit code 4, and the document says so."""
    drained = commands.run("drain", "batch:app", "--json", "--url", "amqp://127.0.0.1:1/")
    assert 4 == drained.wait()
    assert "connection refused" in drained.err
    assert "" == drained.out  # it did not begin


def test_a_broker_that_is_lost(shop: Commands) -> None:
    """Exit code 4: nobody knows what is left; the document says what was done."""
    _fill(shop, {"do": "nothing", "seconds": 2}, {"do": "nothing"})
    drained = shop.start("drain", "batch:app", "--json")
    eventually(lambda: sum(_marks(shop).values()) == 2)
    queue = f"{shop.environment['SHOP_PREFIX']}.first"
    _delete(shop, queue)
    assert 4 == drained.wait()
    summary = json.loads(drained.out)
    assert ("broker", None) == (summary["ended_by"], summary["left"])


def _delete(shop: Commands, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(shop.environment["QUEUEY_URL"])) as connection:
        connection.channel().queue_delete(queue)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--max-jobs", "0"), "--max-jobs"),
        (("--max-time", "soon"), "--max-time"),
        (("--max-time", "0s"), "--max-time"),
        (("--wait-held", "-1s"), "--wait-held"),
    ],
)
def test_limits_that_make_no_sense(shop: Commands, options: tuple[str, str], text: str) -> None:
    """One line, exit code 2."""
    drained = shop.run("drain", "batch:app", *options)
    assert 2 == drained.wait()
    assert text in drained.err_lines[-1]


def _on_a_terminal(shop: Commands, *, kill: bool = False) -> str:
    """What a drain shows on a terminal; `kill` ends it with two signals."""
    parent, child = pty.openpty()
    drained = shop.start("drain", "batch:app", "-c", "2", stderr=child)
    os.close(child)
    seen = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while True:
            seen += os.read(parent, 4096)
            if kill and b"2/8" in seen:
                kill = False
                drained.send(signal.SIGTERM)
                drained.send(signal.SIGINT)
    os.close(parent)
    drained.wait()
    return seen.decode()


def test_a_terminal_shows_how_far_it_is(shop: Commands) -> None:
    """A bar with position and rate, and the summary at the end."""
    _fill(shop, {"do": "nothing", "seconds": 0.3}, times=8)
    text = _on_a_terminal(shop)
    assert "draining" in text
    assert "/s" in text
    assert all(f"{done}/8" in text for done in (2, 8))
    assert "8 succeeded" in text.splitlines()[-1]


@pytest.mark.parametrize("kill", [False, True])
def test_a_terminal_has_its_cursor_back(shop: Commands, kill: bool) -> None:
    """The bar hides it, and whatever ends the command shows it again."""
    _fill(shop, {"do": "nothing", "seconds": 0.5}, times=8)
    text = _on_a_terminal(shop, kill=kill)
    assert "\x1b[?25l" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
