"""The demo given what it cannot work with: one line, a true exit code, no traceback."""

import fcntl
import importlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.conftest import FOLDERS
from tests.support.source import ROOT

NOWHERE = "amqp://guest:hidden@127.0.0.1:1/"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with one file."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a").write_text("a")
    return folder


def _run(out: Path, *arguments: str) -> tuple[int, str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "compress", "--out", str(out), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(FOLDERS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert "hidden" not in done.stdout + done.stderr, "a password was shown"
    return done.returncode, done.stdout, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("url", "code", "text"),
    [
        ("http://guest:hidden@x/", 2, "expected sqlite:///path or amqp://user:password@host"),
        ("amqp://guest:hidden@host:port/", 2, "expected amqp://user:password@host:port/vhost"),
        (NOWHERE, 4, "connection refused"),
        ("sqlite:////no/such/folder/jobs.db", 4, "/no/such/folder"),
        ("sqlite:////proc/version", 4, "/proc/version"),
        ("sqlite:///jobs.db?colour=red", 2, "colour"),
    ],
    ids=["no scheme", "unreadable", "unreachable", "no folder", "no store", "no option"],
)
def test_a_url_that_leads_nowhere(
    files: Path, tmp_path: Path, url: str, code: int, text: str
) -> None:
    """A broker that cannot be used is named in one line, without its password."""
    returned, _, said = _run(tmp_path / "out", "--folder", str(files), "--url", url)
    assert code == returned
    assert 1 == len(said)
    assert text in said[0]


def test_a_wrong_password(files: Path, tmp_path: Path, url: str) -> None:
    """The user is named, the password is not."""
    wrong = url.replace("//guest:guest@", "//guest:hidden@")
    code, _, said = _run(tmp_path / "out", "--folder", str(files), "--url", wrong)
    assert (4, 1) == (code, len(said))
    assert "access refused for user `guest`" in said[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [("none", "No such file or directory"), ("files/a", "Not a directory"), ("empty", "no files")],
)
def test_a_folder_without_files(files: Path, tmp_path: Path, name: str, text: str) -> None:
    """A folder that gives no files is refused before any broker is asked."""
    (tmp_path / "empty").mkdir()
    code, _, said = _run(tmp_path / "out", "--folder", str(files.parent / name), "--url", NOWHERE)
    assert (2, 1) == (code, len(said))
    assert said[0].startswith(f"demo: --folder {tmp_path / name}: {text}")


@pytest.mark.parametrize("limit", ["0", "-1", "ten"])
def test_a_limit_that_is_no_number_of_files(tmp_path: Path, limit: str) -> None:
    """`--limit` takes 1 or more."""
    code, _, said = _run(tmp_path / "out", "--limit", limit)
    assert 2 == code
    assert said[-1].endswith(f"{limit!r} is not a number of files, 1 or more")


def test_an_output_folder_that_is_a_file(files: Path, tmp_path: Path) -> None:
    """A place that cannot hold the results is refused."""
    code, _, said = _run(files / "a", "--folder", str(files), "--url", NOWHERE)
    assert (2, [f"demo: --out {files / 'a'}: File exists; give another folder"]) == (code, said)


def test_a_second_demo_on_the_same_output_folder(files: Path, tmp_path: Path) -> None:
    """One demo at a time works in a folder; the other is told so."""
    out = tmp_path / "out"
    out.mkdir()
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, said = _run(out, "--folder", str(files), "--url", NOWHERE)
    assert (1, 1) == (code, len(said))
    assert f"another demo is at work in {out}" in said[0]


def test_what_cannot_be_compressed_is_told(files: Path, tmp_path: Path, url: str) -> None:
    """A name that is no text is left out; a file that cannot be read makes the run a failure."""
    Path(os.fsdecode(os.fsencode(files) + b"/\xff")).write_text("b")
    (files / "unreadable").symlink_to("/proc/self/mem")
    code, output, said = _run(tmp_path / "out", "--folder", str(files), "--url", url)
    assert 1 == code
    assert "3 enqueued = 1 done + 2 dead + 0 waiting" in output
    assert "one job more is for a file that is not there, to show a dead letter" in output
    assert "not UTF-8" in said[0]
    assert "not compressed: 1 of the files" in said[1]

    other, _, said = _run(tmp_path / "other", "--folder", str(files), "--url", url)
    assert 1 == other
    assert "this place holds jobs of a demo with another --out" in said[1]


def test_a_full_disk_tears_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that does not fit is not there at all, so that the next one can be read."""
    monkeypatch.syspath_prepend(str(ROOT / "docs/examples"))
    records = importlib.import_module("compress.records")
    file = tmp_path / "events.jsonl"
    records.append(file, [{"event": 1}])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 5, hard))
    try:
        with pytest.raises(OSError, match="No space left"):
            records.append(file, [{"event": 2}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    records.append(file, [{"event": 3}])
    assert [{"event": 1}, {"event": 3}] == records.lines_of(file)
