"""Outputs that take nothing: a lost result is told, with 1; any other line is not missed."""

import signal
import subprocess
from typing import Any

import pytest

from tests.cli.conftest import Commands

_MEMORY = ("--url", "memory:")


def _into(redirection: str) -> dict[str, Any]:
    """Have the shell redirect an output of the command."""
    return {"under": ("sh", "-c", f'exec "$@" {redirection}', "sh")}


_NO_ROOM = pytest.mark.parametrize("target", ["/dev/full", "&-"], ids=["full", "closed"])


@_NO_ROOM
@pytest.mark.parametrize(
    ("arguments", "also"),
    [
        (["--help"], ""),
        (["worker", "--help"], ""),
        (["--version"], ""),
        (["declare", "shop:app", *_MEMORY], "; the queues are declared"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_a_result_that_cannot_be_written(
    commands: Commands, target: str, arguments: list[str], also: str
) -> None:
    """It ends the command with 1 and one line."""
    ended = commands.run(*arguments, **_into(f">{target}"))
    assert 1 == ended.wait()
    (line,) = ended.err_lines
    assert line.startswith("queuey-sync: standard output cannot be written: ")
    assert line.endswith(also)


@_NO_ROOM
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["declare", "talks:app", *_MEMORY], 0),
        ([], 2),
        (["declare", "shop:app", "--nope"], 2),
        (["declare", "broken:app"], 3),
        (["declare", "shop:app", "--url", "amqp://127.0.0.1:1/"], 4),
    ],
    ids=["success", "help", "usage", "traceback", "broker"],
)
def test_an_error_output_without_room(
    commands: Commands, target: str, arguments: list[str], code: int
) -> None:
    """What cannot be said changes no exit code, whether we or the app would say it."""
    ended = commands.run(*arguments, **_into(f"2>{target}"), QUEUEY_URL="memory:")
    assert code == ended.wait()
    assert ("shop.post" in ended.out) is (code == 0)


def test_what_an_app_printed_is_no_result(commands: Commands) -> None:
    """A command without results keeps its exit code, and it is said that words were lost."""
    nowhere = ("--url", "amqp://127.0.0.1:1/")
    ended = commands.run("declare", "talks:app", *nowhere, **_into(">/dev/full"))
    assert 4 == ended.wait()
    assert "queuey-sync: not all that was printed could be written" in ended.err
    assert "Exception ignored" not in ended.err


@_NO_ROOM
@pytest.mark.parametrize("number", [1, 2])
def test_a_worker_without_room_for_its_words(commands: Commands, target: str, number: int) -> None:
    """Its jobs are run and it stops with 0, whatever becomes of its log and the app's words."""
    into = _into(f"{number}>{target}")
    worker = commands.start("worker", "talks:app", "-l", "DEBUG", QUEUEY_URL="memory:", **into)
    commands.marked("told ada")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(5), worker.err


@_NO_ROOM
def test_lines_are_enqueued_without_room_for_words(shop: Commands, target: str) -> None:
    """Nobody hears how many were enqueued, and they are."""
    into = _into(f"2>{target}")
    running = shop.start("enqueue", "shop:app", "shop.Notify", stdin=subprocess.PIPE, **into)
    running.process.communicate(b'{"to":"a"}\n{"to":"b"}\n')
    assert 0 == running.wait()
    assert 2 == len(running.out.split())
