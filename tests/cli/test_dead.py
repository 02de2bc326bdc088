"""``queuey-sync dead`` as real processes, on a store and on a broker: happy, interrupted, wrong."""

import json
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Commands, Running
from tests.support.waiting import eventually

_MANY = 10_000


@pytest.fixture(params=["store", "broker"])
def dead(request: pytest.FixtureRequest, commands: Commands, tmp_path: Path) -> Commands:
    """Starts commands for a shop with three dead letters: nobody handles such jobs."""
    if request.param == "broker":
        request.getfixturevalue("shop")
    else:
        commands.environment["QUEUEY_URL"] = f"sqlite:///{tmp_path}/jobs.db"
    for _ in range(3):
        assert 0 == commands.run("enqueue", "shop:app", "shop.Stray", "{}").wait()
    assert 0 == commands.run("drain", "shop:app").wait()
    return commands


def _run(
    dead: Commands, command: str, *options: str, code: int = 0, queue: str = "post"
) -> Running:
    ended = dead.run("dead", command, "shop:app", queue, *options)
    assert code == ended.wait(), ended.err
    return ended


def _list(dead: Commands, *options: str) -> list[dict[str, Any]]:
    document = json.loads(_run(dead, "list", "--json", *options).out)
    found: list[dict[str, Any]] = document["dead"]
    return found


def _ready(dead: Commands) -> int:
    document = json.loads(dead.run("queues", "shop:app", "--json").out)
    return sum(queue["ready"] for queue in document["queues"].values())


def _more_than(dead: Commands, count: int) -> bool:
    return _ready(dead) > count


def test_a_list_for_people_and_for_programs(dead: Commands) -> None:
    """A line for each, or one document."""
    listed = _run(dead, "list")
    heading, *lines = listed.out.splitlines()
    assert ["job", "id", "job", "type", "attempt", "age", "reason"] == heading.split()
    assert 3 == len(lines) == sum("no handler for job type `shop.Stray`" in one for one in lines)
    assert "3 shown of 3 in all" in listed.err
    first, *_ = _list(dead)
    assert ("shop.Stray", 1, {}) == (first["job_type"], first["attempt"], first["payload"])
    assert first["died_at"].startswith("20")
    assert 2 == len(_list(dead, "--limit", "2"))


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--job-type", "shop.Stray", "--reason", "NO HANDLER", "--attempt", "1"), 3),
        (("--newer-than", "1h"), 3),
        (("--job-type", "shop.Notify"), 0),
        (("--reason", "timeout"), 0),
        (("--attempt", "2"), 0),
        (("--older-than", "1h"), 0),
        (("--malformed",), 0),
    ],
    ids=str,
)
def test_filters(dead: Commands, options: tuple[str, ...], count: int) -> None:
    """Each of them, and several together."""
    assert count == len(_list(dead, *options))


def test_one_is_shown_whole(dead: Commands) -> None:
    """By the beginning of its id."""
    wanted = _list(dead)[1]["job_id"]
    shown = _run(dead, "show", "--job-id", wanted[:13]).out
    for text in (wanted, "shop.Stray", "no handler for job type", "payload"):
        assert text in shown
    assert wanted == json.loads(_run(dead, "show", "--json", "--job-id", wanted).out)["job_id"]
    assert "no such dead letter" in _run(dead, "show", "--job-id", "x", code=1).err


def test_some_are_requeued_and_die_again(dead: Commands) -> None:
    """With their ids; a dry run only counts."""
    first, second, third = (one["job_id"] for one in _list(dead))
    assert "1 would be requeued\n" == _run(dead, "requeue", "--job-id", second, "--dry-run").out
    assert 0 == _ready(dead)
    assert "1 requeued\n" == _run(dead, "requeue", "--job-id", second).out
    assert 1 == _ready(dead)
    assert {first, third} == {one["job_id"] for one in _list(dead)}
    assert 0 == dead.run("drain", "shop:app").wait()
    assert {first, second, third} == {one["job_id"] for one in _list(dead)}


def test_requeued_with_another_payload(dead: Commands) -> None:
    """For each of those that are meant."""
    assert "3 requeued\n" == _run(dead, "requeue", "--payload", '{"to": "ada"}').out
    assert 0 == dead.run("drain", "shop:app").wait()
    assert [{"to": "ada"}] * 3 == [one["payload"] for one in _list(dead)]


def test_dropped_is_gone(dead: Commands) -> None:
    """If somebody says that it is meant."""
    assert "give --yes" in _run(dead, "drop", code=2).err
    assert "3 would be dropped\n" == _run(dead, "drop", "--dry-run").out
    assert "1 dropped\n" == _run(dead, "drop", "--yes", "--limit", "1").out
    assert 2 == len(_list(dead))
    assert "2 dropped\n" == _run(dead, "drop", "--yes").out
    assert [] == _list(dead)


def test_exported_is_enqueued_again(dead: Commands) -> None:
    """All of it in a line each, or what `enqueue` reads."""
    lines = _run(dead, "export").out.splitlines()
    assert [one["job_id"] for one in _list(dead)] == [json.loads(line)["job_id"] for line in lines]
    payloads = _run(dead, "export", "--payloads", "--job-type", "shop.Stray").out
    file = dead.marks.with_name("payloads")
    file.write_text(payloads)
    with file.open("rb") as source:
        assert 0 == dead.run("enqueue", "shop:app", "shop.Stray", stdin=source).wait()
    assert (3, 3) == (_ready(dead), len(_list(dead)))


@pytest.mark.parametrize(
    ("command", "options", "text"),
    [
        ("requeue", ("--rate", "fast"), "--rate"),
        ("requeue", ("--rate", "0/s"), "--rate"),
        ("requeue", ("--payload", "{"), "--payload: "),
        ("requeue", ("--payload", "NaN"), "--payload: "),
        ("list", ("--limit", "0"), "--limit"),
        ("list", ("--older-than", "0s"), "longer than zero"),
    ],
)
def test_what_makes_no_sense(
    commands: Commands, command: str, options: tuple[str, ...], text: str
) -> None:
    """One line, before anything is opened."""
    commands.environment["QUEUEY_URL"] = "sqlite:////no/such/folder/jobs.db"
    assert text in _run(commands, command, *options, code=2).err


def test_queues_that_are_not_there(commands: Commands, tmp_path: Path) -> None:
    """Of the app, in the store, or in another process."""
    commands.environment["QUEUEY_URL"] = f"sqlite:///{tmp_path}/jobs.db"
    assert "the app has no queue 'nope'" in _run(commands, "list", code=2, queue="nope").err
    assert "there is no store at" in _run(commands, "list", code=4).err
    commands.environment["QUEUEY_URL"] = "memory:"
    assert "of its own" in _run(commands, "list", code=2).err


def test_a_broker_without_the_queue(shop: Commands) -> None:
    """The line names it."""
    assert ".post.dead" in _run(shop, "list", code=4).err


@pytest.fixture
def many(dead: Commands) -> Commands:
    """The same with 10,000 dead letters, of the same kind."""
    lines = dead.marks.with_name("lines")
    lines.write_text("{}\n" * (_MANY - 3))
    with lines.open("rb") as source:
        assert 0 == dead.start("enqueue", "shop:app", "shop.Stray", stdin=source).wait(60)
    _drain(dead)
    return dead


def _drain(dead: Commands) -> None:
    drain = ("drain", "shop:app", "-c", "16", "--log-level", "ERROR")
    assert 0 == dead.start(*drain).wait(120)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand(many: Commands) -> None:
    """The first page comes at once; a requeue that is killed twice and resumed loses none."""
    began = time.monotonic()
    assert 50 == len(_list(many))
    assert time.monotonic() - began < 3  # with the start of the command, on a busy machine
    ids = {json.loads(line)["job_id"] for line in _run(many, "export").out.splitlines()}
    assert _MANY == len(ids)
    for signum in (signal.SIGKILL, signal.SIGTERM):
        before = _ready(many)
        running = many.start("dead", "requeue", "shop:app", "post", "--rate", "1000/s")
        eventually(partial(_more_than, many, before), 20)
        running.send(signum)
        assert running.wait() in {-signal.SIGKILL, 6}
    _run(many, "requeue")
    assert [] == _list(many)
    assert _ready(many) >= _MANY
    _drain(many)
    again = [json.loads(line)["job_id"] for line in _run(many, "export").out.splitlines()]
    assert ids == set(again)
