"""The demo, as a newcomer uses it: run it, stop it in the middle, run it again, add up."""

import json
import lzma
import os
import random
import re
import signal
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.demo.conftest import FOLDERS
from tests.support.broker import Broker
from tests.support.source import ROOT
from tests.support.waiting import eventually

FILES = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that take a while to compress, some of them with a made-up fault."""
    folder = tmp_path / "files"
    folder.mkdir()
    rng = random.Random(1)
    for number in range(FILES):
        (folder / f"{number}.bin").write_bytes(rng.randbytes(200_000) + bytes(100_000))
    return folder


@contextmanager
def _demo(command: list[str], folder: Path, out: Path, *arguments: str) -> Iterator[Any]:
    """The demo as the leader of a group of processes, like a command typed at a terminal."""
    process = subprocess.Popen(
        [*command, "--folder", str(folder), "--out", str(out), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(FOLDERS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def _events(out: Path, name: str) -> list[Any]:
    file = out / "events.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == name]


def _made_up_faults(folder: Path) -> int:
    return sum(zlib.crc32(file.name.encode()) % 20 == 0 for file in folder.iterdir())


def _check_all_is_done(folder: Path, out: Path) -> None:
    jobs = Counter(event["job"] for event in _events(out, "done"))
    assert FILES == len(jobs)
    assert {1} == set(jobs.values()), "a job that was acknowledged ran again"
    for source in folder.iterdir():
        packed = out / "files" / source.relative_to("/").with_name(source.name + ".xz")
        assert source.read_bytes() == lzma.decompress(packed.read_bytes())
    attempts = Counter(event["attempt"] for event in _events(out, "started"))
    assert {1: FILES + 1, 2: _made_up_faults(folder)} == attempts


@pytest.fixture(params=["a given broker", "a broker of its own", "a store of its own"])
def command(request: pytest.FixtureRequest) -> list[str]:
    """How to run the demo: as a module on the shared broker, or as the script."""
    script = str(ROOT / "scripts" / "demo")
    if request.param == "a store of its own":
        return [script]
    if request.param == "a broker of its own":
        request.getfixturevalue("broker")  # so that RabbitMQ is there, or the test is skipped
        return [script, "--broker"]
    url = request.getfixturevalue("url")
    return [sys.executable, "-m", "compress", "--url", url, "--pool", "process"]


@pytest.mark.slow
def test_stopped_in_the_middle_and_started_again(
    command: list[str], folder: Path, tmp_path: Path
) -> None:
    """Ctrl-C leaves the rest on the queue; the next run finishes it, and nothing runs twice."""
    out = tmp_path / "out"
    with _demo(command, folder, out) as demo:
        eventually(lambda: len(_events(out, "done")) >= 5, timeout=90)
        os.killpg(demo.pid, signal.SIGINT)
        output, _ = demo.communicate(timeout=30)
        assert 130 == demo.returncode, output
        done = len(_events(out, "done"))
        assert 5 <= done < FILES
        assert f"{FILES + 1} enqueued = {done} done + 0 dead + {FILES + 1 - done} waiting" in output
    assert not Broker(out / "broker").is_running()

    with _demo(command, folder, out) as demo:
        output, _ = demo.communicate(timeout=60)
        assert 0 == demo.returncode, output
        assert f"{FILES + 1} enqueued = {FILES} done + 1 dead + 0 waiting" in output
        assert f"{FILES} with a job each; one job more" in output
        assert "fatal error: [Errno 2] No such file or directory" in output
    assert _made_up_faults(folder) > 0
    _check_all_is_done(folder, out)
    assert not (out / "speeds.json").exists(), "a run that was stopped tells no speed"


@pytest.mark.slow
def test_the_pools_are_compared(url: str, folder: Path, tmp_path: Path) -> None:
    """A run with the other pool says how fast each of them was with the same files."""
    command = [sys.executable, "-m", "compress", "--url", url, "--fresh"]
    said = []
    for pool in ("thread", "process"):
        with _demo([*command, "--pool", pool], folder, tmp_path / "out") as demo:
            output, _ = demo.communicate(timeout=60)
            assert 0 == demo.returncode, output
            said.append(re.search(r"^speed +(.*)$", output, re.MULTILINE)[1])  # type: ignore[index]
    speed = r"\d+ files/s, [\d.]+ MB/s"
    assert re.fullmatch(f"{speed}; --fresh --pool process shows the difference", said[0])
    compared = rf"{speed}, which is ([\d.]+) x that of --pool thread \({speed}\)"
    assert re.fullmatch(compared, said[1])
