"""The options of pools and time limits, on real workers with real children."""

import json
import re
import signal
import subprocess
from typing import Any

import pytest

from tests.cli.conftest import Commands, Running
from tests.support.waiting import eventually

_LINE = re.compile(
    r"\S+ \S+ \S+:\d+/\d+ INFO crew: x+"
    r" \[job_id=\S+ job_type=crew\.Task queue=crew\.work attempt=1\]"
)


def _work(
    commands: Commands, *options: str, jobs: tuple[str, ...] = (), **settings: Any
) -> Running:
    return commands.start("worker", "crew:app", *options, CREW=json.dumps(jobs), **settings)


def _stop(worker: Running) -> None:
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(10), worker.err


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_jobs_run_in_children(commands: Commands, method: str) -> None:
    """`-P process` runs handlers in child processes, whichever way these start."""
    worker = _work(commands, "-P", "process", "--start-method", method, jobs=("a", "b"))
    commands.marked("a in a child: True", "b in a child: True")
    _stop(worker)
    assert re.search(r"working on crew\.work with \d+ process(es)?\n", worker.err)


def test_jobs_run_in_threads_by_default(commands: Commands) -> None:
    """Without an option there are no children."""
    worker = _work(commands, "-c", "1", jobs=("a",))
    commands.marked("a in a child: False")
    _stop(worker)
    assert "working on crew.work with 1 thread\n" in worker.err


def test_a_child_that_dies_is_logged_with_its_exit_code(commands: Commands) -> None:
    """The log says how the process of a job died, and the worker goes on."""
    worker = _work(commands, "-P", "process", jobs=("die", "a"))
    worker.says("handler panicked: process died (exit code 3)")
    commands.marked("a in a child: True")
    _stop(worker)


def test_lines_from_children_are_whole_and_name_their_job(commands: Commands) -> None:
    """Four children log long lines into one pipe: each line is whole, with the job's fields."""
    worker = _work(
        commands,
        *("-P", "process", "-c", "4"),
        jobs=("log",) * 12,
        under=("setsid", "sh", "-c", '"$@" 2>&1 >/dev/null | cat >&2', "sh"),
    )
    wanted = 12 * 3 * 30
    eventually(lambda: wanted == sum("INFO crew: x" in line for line in worker.err_lines), 30)
    assert wanted == sum(_LINE.fullmatch(line) is not None for line in worker.err_lines)


def test_a_soft_timeout_lets_a_handler_clean_up(commands: Commands) -> None:
    """`--soft-timeout` raises in the handler, which may succeed all the same."""
    worker = _work(commands, "-P", "process", "--soft-timeout", "200ms", jobs=("soften",))
    commands.marked("softened")
    _stop(worker)
    assert "timed out" not in worker.err


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_stop_that_takes_too_long_exits_with_5(commands: Commands, pool: str) -> None:
    """At `--stop-deadline` running jobs are given up, and named."""
    worker = _work(commands, "-P", pool, "--stop-deadline", "300ms", jobs=("sleep",))
    commands.marked("start")
    worker.send(signal.SIGTERM)
    assert 5 == worker.wait(5), worker.err
    assert re.search(r"still ran at the deadline of the stop, .*\(crew\.Task\)", worker.err)


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_start_that_fails_exits_with_3(commands: Commands, pool: str) -> None:
    """An `on_start` function that raises ends the worker, which says so and takes nothing."""
    worker = _work(commands, "-P", pool, jobs=("a",), FAIL="1")
    assert 3 == worker.wait(20), worker.err
    assert "queuey-sync: " in worker.err_lines[-1]
    assert "on_start begin: RuntimeError: no model" in worker.err_lines[-1]
    assert not commands.marks.exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("-P", "fibre"), "'fibre' is not one of"),
        (("--start-method", "spawn"), "--start-method: it needs --pool process"),
        (("--max-jobs-per-child", "5"), "--max-jobs-per-child: it needs --pool process"),
        (("-P", "process", "--child-memory-limit", "much"), "expected a size such as 512MB"),
        (("-P", "process", "--max-jobs-per-child", "0"), "0 is not in the range"),
        (("--stop-deadline", "0"), "it must be longer than zero"),
        (("--job-timeout", "1s", "--soft-timeout", "1s"), "shorter than --job-timeout"),
    ],
)
def test_wrong_options_are_refused(commands: Commands, options: tuple[str, ...], text: str) -> None:
    """A wrong option of a pool is a usage error that names it."""
    worker = _work(commands, *options)
    assert 2 == worker.wait(), worker.err
    assert text in worker.err


def test_nothing_is_left_of_a_worker_that_ends(commands: Commands) -> None:
    """After a stop there is no child, no forkserver and no tracker."""
    worker = _work(commands, "-P", "process", jobs=("a",), under=("setsid",))
    commands.marked("a in a child: True")
    assert 1 < len(_processes_of(worker))
    _stop(worker)
    eventually(lambda: not _processes_of(worker), 5)


def _processes_of(worker: Running) -> list[str]:
    """The processes of the session that the worker leads."""
    command = ["pgrep", "--session", str(worker.pid)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.split()
