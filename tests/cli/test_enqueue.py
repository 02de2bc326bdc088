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
from collections.abc import Iterator
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


def test_no_lines_at_all(commands: Commands) -> None:
    """An empty input is no mistake, and is said."""
    ended = _notify(commands, QUEUEY_URL="memory:")
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
    assert "1 job enqueued; not taken were those of lines 2, 4" in running.err
    assert "unroutable" in running.err_lines[-1]
    assert 1 == len(running.out.split())


def test_nobody_reads_the_ids(commands: Commands) -> None:
    """A closed standard output ends the command with a line, and no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = _notify(commands, '{"to":"a"}', stdout=writer, QUEUEY_URL="memory:")
    finally:
        os.close(writer)
    assert 1 == ended.wait()
    (line,) = ended.err_lines
    assert "queuey-sync: standard output was closed" in line


def _read_all(terminal: int) -> str:
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that its other end is closed
        while chunk := os.read(terminal, 65536):
            shown += chunk
    return shown.decode()


@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("ids_too", [False, True], ids=["ids to a file", "ids to the terminal"])
def test_a_progress_bar_on_a_terminal(
    commands: Commands, tmp_path: Path, piped: bool, ids_too: bool
) -> None:
    """On a terminal standard error shows a bar, by percent if the size is known; ids stay whole."""
    (tmp_path / "lines").write_bytes(b'{"to":"a"}\n' * 30_000)
    terminal, end = pty.openpty()
    with (tmp_path / "ids").open("wb") as ids, (tmp_path / "lines").open("rb") as lines:
        feeder = subprocess.Popen(["cat"], stdin=lines, stdout=subprocess.PIPE) if piped else None
        process = subprocess.Popen(
            [sys.executable, "-m", "queuey_sync", "enqueue", "shop:app", "shop.Notify"],
            cwd=APPS,
            env={**os.environ, **commands.environment, "QUEUEY_URL": "memory:"},
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
