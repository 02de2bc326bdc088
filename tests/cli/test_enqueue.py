"""Enqueuing from the command line, on a real broker: single jobs, lines of input, faults."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cli.conftest import APPS, Commands, Running
from tests.support.waiting import eventually


class Queue:
    """The queue ``post`` of the shop, seen from outside."""

    def __init__(self, channel: BlockingChannel, name: str) -> None:
        self._channel = channel
        self.name = name

    def count(self) -> int:
        """How many jobs wait on it."""
        return self._channel.queue_declare(self.name, passive=True).method.message_count

    def take(self) -> dict[str, Any]:
        """The envelope at its head, which is gone then."""
        _, _, body = eventually(self._get)
        envelope: dict[str, Any] = json.loads(body)
        return envelope

    def _get(self) -> Any:
        answer = self._channel.basic_get(self.name, auto_ack=True)
        return answer if answer[0] is not None else None

    def delete(self) -> None:
        """Take it away."""
        self._channel.queue_delete(self.name)


@pytest.fixture
def post(shop: Commands) -> Iterator[Queue]:
    """The queue that notifications go to; it exists once something was enqueued."""
    url = shop.environment["QUEUEY_URL"]
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        yield Queue(connection.channel(), f"{shop.environment['SHOP_PREFIX']}.post")


def _notify(
    shop: Commands, *arguments: str, lines: bytes | None = None, **settings: Any
) -> Running:
    """Enqueue notifications; `lines` are given as a file on standard input."""
    if lines is None:
        return shop.run("enqueue", "shop:app", "shop.Notify", *arguments, **settings)
    file = shop.marks.with_name("lines.ndjson")
    file.write_bytes(lines)
    with file.open("rb") as stdin:
        return shop.run("enqueue", "shop:app", "shop.Notify", *arguments, stdin=stdin, **settings)


def test_one_job(shop: Commands, post: Queue) -> None:
    """A job given as an argument is on its queue, and its id on standard output."""
    ended = _notify(shop, '{"to": "ådá"}')
    assert 0 == ended.wait(), ended.err
    envelope = post.take()
    assert envelope["job_id"] == ended.out.strip()
    assert "ådá" == envelope["payload"]["to"]
    assert "shop.Notify" == envelope["job_type"]
    assert "" == ended.err


def test_a_job_without_a_handler_can_be_enqueued(shop: Commands, post: Queue) -> None:
    """What an app may enqueue is what it declares, not what it handles."""
    assert 0 == shop.run("enqueue", "shop:app", "shop.Stray", "{}").wait()
    assert "shop.Stray" == post.take()["job_type"]


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--correlation-id", "t-9", "--after", "1s"], {}),
        ([], {"QUEUEY_CORRELATION_ID": "t-9", "QUEUEY_AFTER": "1s"}),
    ],
    ids=["flags", "environment"],
)
@pytest.mark.parametrize("lines", [None, b'{"to":"a"}'], ids=["argument", "line"])
def test_later_and_with_a_correlation_id(
    shop: Commands,
    post: Queue,
    arguments: list[str],
    environment: dict[str, str],
    lines: bytes | None,
) -> None:
    """The job carries the correlation id and is held for the time that was asked for."""
    job = ["-"] if lines else ['{"to":"a"}']
    ended = _notify(shop, *job, *arguments, lines=lines, **environment)
    assert 0 == ended.wait(), ended.err
    envelope = post.take()
    assert "t-9" == envelope["correlation_id"]
    assert 0 == envelope["priority"]
    assert 1000 <= envelope_age_ms(envelope)


def envelope_age_ms(envelope: dict[str, Any]) -> float:
    """How long ago it was enqueued."""
    return time.time() * 1000 - float(envelope["enqueued_at_ms"])


def test_a_thousand_lines(shop: Commands, post: Queue) -> None:
    """Each line is a job; the ids on standard output are theirs, in order; blank lines are none."""
    numbers = range(1000)
    lines = "\n".join(f'{{"to": "n{number}"}}' + "\n" * (number % 3 == 0) for number in numbers)
    ended = _notify(shop, lines=lines.encode())
    assert 0 == ended.wait(), ended.err
    assert 1000 == post.count()
    ids = ended.out.split()
    assert 1000 == len({uuid.UUID(job_id) for job_id in ids})
    for number in range(3):
        envelope = post.take()
        assert (ids[number], f"n{number}") == (envelope["job_id"], envelope["payload"]["to"])
    assert ["queuey-sync: 1000 jobs enqueued"] == ended.err_lines


def test_lines_are_enqueued_as_they_arrive(shop: Commands, post: Queue) -> None:
    """A line is enqueued while the writer still has more to say."""
    running = shop.start("enqueue", "shop:app", "shop.Notify", stdin=subprocess.PIPE)
    assert running.process.stdin is not None
    for to in ("first", "second"):
        running.process.stdin.write(f'{{"to":"{to}"}}\n'.encode())
        running.process.stdin.flush()
        eventually(lambda: running.out.count("\n") and post.count(), 20)
        assert to == post.take()["payload"]["to"]
    running.process.stdin.close()
    assert 0 == running.wait()
    assert ["queuey-sync: 2 jobs enqueued"] == running.err_lines


@pytest.mark.parametrize(
    ("lines", "enqueued", "text"),
    [
        (b'{"to":"a"}\n\n{"to":"b"}\n{"to":3}\n{"to":"c"}\n', 2, "line 4: Expected `str`"),
        (b'{"to":"a"}\nto: b\n{"to":"c"}', 1, "line 2: JSON is malformed"),
        (b"[]\n", 0, "line 1: Expected `object`"),
        (b'{"to":"\xff"}\n', 0, "line 1: "),
    ],
    ids=["wrong type", "no JSON", "no object", "no UTF-8"],
)
def test_a_bad_line_ends_it(
    shop: Commands, post: Queue, lines: bytes, enqueued: int, text: str
) -> None:
    """The jobs before a bad line are enqueued, nothing from it on is; the line is named."""
    ended = _notify(shop, lines=lines)
    assert 2 == ended.wait()
    (line,) = ended.err_lines
    assert text in line
    assert f"enqueued: {enqueued} job{'s' * (enqueued != 1)} before it, none from it on" in line
    assert enqueued == len(ended.out.split())
    if enqueued:
        assert enqueued == post.count()


def test_no_lines_at_all(shop: Commands) -> None:
    """An empty input is no mistake, and is said."""
    ended = _notify(shop)
    assert 0 == ended.wait()
    assert ["queuey-sync: 0 jobs enqueued"] == ended.err_lines


def test_jobs_that_the_broker_returns(shop: Commands, post: Queue) -> None:
    """When a queue is gone the command ends with 4 and says which lines were not taken."""
    running = shop.start("enqueue", "shop:app", "shop.Notify", stdin=subprocess.PIPE)
    assert running.process.stdin is not None
    running.process.stdin.write(b'{"to":"a"}\n')
    running.process.stdin.flush()
    eventually(lambda: running.out, 20)
    post.delete()
    running.process.stdin.write(b'{"to":"b"}\n\n{"to":"c"}\n')
    running.process.stdin.close()
    assert 4 == running.wait()
    assert "1 job enqueued; not confirmed: line 2, 4; nothing after line 4 was tried" in running.err
    assert "unroutable" in running.err_lines[-1]
    assert 1 == len(running.out.split())


def test_a_line_that_fails_among_single_ones(shop: Commands, post: Queue) -> None:
    """Where jobs are published one by one, too, it is said which are and which are not."""
    arguments = ("enqueue", "shop:app", "shop.Notify", "--correlation-id", "c")
    running = shop.start(*arguments, stdin=subprocess.PIPE)
    assert running.process.stdin is not None
    running.process.stdin.write(b'{"to":"a"}\n{"to":"b"}\n')
    running.process.stdin.flush()
    eventually(lambda: 2 == running.out.count("\n"), 20)
    post.delete()
    running.process.stdin.write(b'{"to":"c"}\n{"to":"d"}\n')
    running.process.stdin.close()
    assert 4 == running.wait()
    assert "2 jobs enqueued; not confirmed: line 3; nothing after line 3 was tried" in running.err


def test_some_of_several_lines_are_taken(commands: Commands) -> None:
    """The ids of those that are taken are printed, and the lines of the others named."""
    file = commands.marks.with_name("lines.ndjson")
    file.write_bytes(b'{"to":"a"}\n' * 5)
    with file.open("rb") as stdin:
        ended = commands.run("enqueue", "picky:app", "shop.Notify", stdin=stdin)
    assert 4 == ended.wait()
    assert 3 == len({uuid.UUID(job_id) for job_id in ended.out.split()})
    assert "3 jobs enqueued; not confirmed: line 2, 4; nothing after line 5" in ended.err_lines[0]


@pytest.mark.parametrize("way", ["argument", "lines"])
def test_a_byte_order_mark_is_skipped(shop: Commands, post: Queue, way: str) -> None:
    """Some editors put one before a text; JSON has none, and a reader may ignore it."""
    job = '\ufeff{"to":"a"}'
    ended = _notify(shop, job) if way == "argument" else _notify(shop, lines=job.encode())
    assert 0 == ended.wait(), ended.err
    assert "a" == post.take()["payload"]["to"]


def _without_readers() -> int:
    """The end of a pipe that nobody reads from."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def _full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("make_output", [_without_readers, _full])
@pytest.mark.parametrize("one", [True, False], ids=["argument", "lines"])
def test_the_ids_cannot_be_written(
    shop: Commands, post: Queue, make_output: Callable[[], int], one: bool
) -> None:
    """The command ends with 1, and one line says what is published all the same."""
    output = make_output()
    try:
        if one:
            ended = _notify(shop, '{"to":"a"}', stdout=output)
        else:
            ended = _notify(shop, lines=b'{"to":"a"}\n' * 1000, stdout=output)
    finally:
        os.close(output)
    assert 1 == ended.wait()
    (line,) = ended.err_lines
    assert line.startswith("queuey-sync: standard output cannot be written: ")
    told = "it is enqueued" if one else "enqueued: 1000 jobs, and nothing after line 1000"
    assert told in line
    assert (1 if one else 1000) == post.count()


def test_a_closed_output_for_the_ids(shop: Commands, post: Queue) -> None:
    """It is refused before anything is published."""
    assert 0 == shop.run("declare", "shop:app").wait()
    ended = _notify(shop, '{"to":"a"}', under=("sh", "-c", 'exec "$@" >&-', "sh"))
    assert 2 == ended.wait()
    assert "standard output is closed" in ended.err
    assert 0 == post.count()


def _read_all(terminal: int) -> str:
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that its other end is closed
        while chunk := os.read(terminal, 65536):
            shown += chunk
    return shown.decode()


@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("ids_too", [False, True], ids=["ids to a file", "ids to the terminal"])
def test_a_progress_bar_on_a_terminal(
    shop: Commands, tmp_path: Path, piped: bool, ids_too: bool
) -> None:
    """On a terminal standard error shows a bar, by percent if the size is known; ids stay whole."""
    (tmp_path / "lines").write_bytes(b'{"to":"a"}\n' * 30_000)
    terminal, end = pty.openpty()
    with (tmp_path / "ids").open("wb") as ids, (tmp_path / "lines").open("rb") as lines:
        feeder = subprocess.Popen(["cat"], stdin=lines, stdout=subprocess.PIPE) if piped else None
        process = subprocess.Popen(
            [sys.executable, "-m", "queuey_sync", "enqueue", "shop:app", "shop.Notify"],
            cwd=APPS,
            env={**os.environ, **shop.environment},
            stdin=feeder.stdout if feeder else lines,
            stdout=end if ids_too else ids,
            stderr=end,
        )
        os.close(end)
        shown = _read_all(terminal)
        os.close(terminal)
        assert 0 == process.wait()
        if feeder and feeder.stdout:
            feeder.stdout.close()
            feeder.wait()
    assert "enqueuing" in shown
    assert ("100%" in shown) is not piped
    assert "30000 jobs enqueued" in shown.splitlines()[-1]
    text = shown if ids_too else (tmp_path / "ids").read_text()
    whole = re.findall(r"^(?:.*\x1b\[K)?([-0-9a-f]{36})\r?$", text, re.MULTILINE)
    assert 30_000 == len(whole)
