"""What one job leaves behind never reaches the next, in threads and in child processes."""

import json
import re
from typing import Any

import pytest

from tests.contrib.flask.conftest import POOLS, THREADS, FlaskCommands

OUTCOMES = {
    "spoil": "IntegrityError",
    "retryable": "Retryable",
    "fatal": "Fatal",
    "defer": "Deferred",
}
"""What a job of the ledger does, and what its handler raises then."""


def _work(
    flask: FlaskCommands, pool: tuple[str, ...], *whats: str, concurrency: int = 1
) -> dict[str, Any]:
    """Enqueue jobs of the ledger, run them, and return the summary."""
    flask.enqueue(*whats)
    flask.marks.write_text("")
    options = ("-c", str(concurrency), "--wait-held", "20s", "--json", *pool)
    summary: dict[str, Any] = json.loads(flask.succeed("ledger", "queuey", "drain", *options).out)
    return summary


def _rows(flask: FlaskCommands) -> list[str]:
    return flask.succeed("ledger", "rows").out.splitlines()


@pytest.fixture
def ledger(flask: FlaskCommands) -> FlaskCommands:
    """The same, with the tables of the ledger."""
    flask.succeed("ledger", "init-db")
    return flask


@POOLS
def test_each_job_has_a_context_and_a_session_of_its_own(
    ledger: FlaskCommands, pool: tuple[str, ...]
) -> None:
    """After a failed flush, an open transaction or a context left open, the next finds nothing."""
    _work(ledger, pool, "spoil", "commit", "forget", "commit", "push", "commit")
    marks = ledger.marked_so_far()
    assert (0, 3) == (marks["dirty"], marks["commit"])
    assert ["row 0", "row 1", "row 2"] == _rows(ledger)


@POOLS
def test_the_context_is_torn_down_once_whatever_came_of_the_job(
    ledger: FlaskCommands, pool: tuple[str, ...]
) -> None:
    """Teardown functions are told what the handler raised, and the next job begins with nothing."""
    whats = [one for what in OUTCOMES for one in (what, "commit")]
    _work(ledger, pool, *whats)
    ends = {text: n for text, n in ledger.marked_so_far().items() if text.startswith("end")}
    # What was deferred came again, and succeeded.
    assert {f"end {name}": 1 for name in OUTCOMES.values()} | {
        "end NoneType": len(OUTCOMES) + 1
    } == ends
    assert 0 == ledger.marked_so_far()["dirty"]
    assert [f"row {number}" for number in range(len(OUTCOMES))] == _rows(ledger)


@POOLS
def test_a_job_at_its_time_limit_leaves_nothing_either(
    ledger: FlaskCommands, pool: tuple[str, ...]
) -> None:
    """A thread tears its context down; a process is killed, and its transaction is rolled back."""
    summary = _work(ledger, (*pool, "--job-timeout", "500ms"), "hang", "commit")
    assert (1, 1) == (summary["succeeded"], summary["dead"])
    marks = ledger.marked_so_far()
    assert (0, 1 if pool == THREADS else 0) == (marks["dirty"], marks["end JobTimedOut"])
    assert ["row 0"] == _rows(ledger)


@POOLS
def test_a_teardown_that_fails_is_logged_and_the_outcome_stands(
    ledger: FlaskCommands, pool: tuple[str, ...]
) -> None:
    """The job has succeeded, and what else was to be torn down is: no session is left."""
    ledger.environment["FLASK_BAD_END"] = "1"
    summary = _work(ledger, pool, "forget", "forget", "commit", "spoil", "commit")
    assert (4, 1, 0) == (summary["succeeded"], summary["dead"], summary["retried"])
    assert 0 == ledger.marked_so_far()["dirty"]
    log = (ledger.marks.parent / "2" / "err").read_text()
    assert 5 == len(re.findall(r"ERROR .*failed, and its job stands: OSError: no way to end", log))


@POOLS
def test_many_jobs_leave_no_connection_in_use(ledger: FlaskCommands, pool: tuple[str, ...]) -> None:
    """Of 200 jobs, half of which leave a transaction open, none finds a connection taken."""
    summary = _work(ledger, pool, *["forget", "commit"] * 100)
    assert 200 == summary["succeeded"]
    marks = ledger.marked_so_far()
    assert (0, 100, 100) == (marks["dirty"], marks["forget"], marks["commit"])


def test_many_threads_leave_no_connection_in_use(ledger: FlaskCommands) -> None:
    """A pool of eight connections serves 200 jobs in eight threads, whatever they leave open."""
    ledger.environment["FLASK_SQLALCHEMY_ENGINE_OPTIONS"] = '{"pool_size": 8, "max_overflow": 0}'
    summary = _work(ledger, (), *["read", "spoil"] * 100, concurrency=8)
    assert (100, 100) == (summary["succeeded"], summary["dead"])


def test_children_share_no_connection_with_the_forkserver(flask: FlaskCommands) -> None:
    """An app that used its database when it was imported has connections; no child gets one."""
    for _ in range(3):
        flask.succeed("early", "queuey", "enqueue", "early.write", "{}")
    flask.marks.write_text("")
    flask.succeed("early", "queuey", "drain", "--pool", "process", "-c", "1")
    marks = flask.marked_so_far()
    made = [mark for mark in marks if "connected" in mark]
    used = [mark.partition(" connections")[0] for mark in marks if "connections" in mark]
    assert ["0", "1"] == sorted(used)
    assert all(mark.startswith("1 ") for mark in made)
