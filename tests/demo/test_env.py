"""The scripts' virtual environment: one whose making was cut off is made anew."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.source import ROOT

PYTHON = """#!/bin/sh
echo "$*" >> calls
case "$*" in
    "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    "-m pip "*) test ! -e offline || { echo "no network"; exit 1; } ;;
esac
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Only what `scripts/_env` needs, with a Python that notes what it is told."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "scripts" / "_env", tmp_path / "scripts")
    (tmp_path / "setup.cfg").write_text("[metadata]\n")
    python = tmp_path / "bin" / "python3"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def _install(repository: Path) -> tuple[int, str, list[str]]:
    calls = repository / "calls"
    calls.unlink(missing_ok=True)
    done = subprocess.run(
        ["bash", "-c", "source scripts/_env; install ."],
        cwd=repository,
        env={"PATH": f"{repository / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    made = [line.split()[1] for line in calls.read_text().splitlines() if line.startswith("-m")]
    return done.returncode, done.stderr, made


def test_made_once(repository: Path) -> None:
    """The first start makes and fills it, the second does nothing; a new setup.cfg fills it."""
    assert (0, ["venv", "pip"]) == _install(repository)[::2]
    assert (0, []) == _install(repository)[::2]
    (repository / "setup.cfg").write_text("[metadata]\nname = x\n")
    assert (0, ["pip"]) == _install(repository)[::2]


def test_made_anew_after_a_failure(repository: Path) -> None:
    """What pip left half-filled is not trusted, and what pip said is shown."""
    (repository / "offline").touch()
    code, said, _ = _install(repository)
    assert code != 0
    assert "no network" in said
    (repository / "offline").unlink()
    assert (0, ["venv", "pip"]) == _install(repository)[::2]


def test_made_anew_when_it_was_cut_off(repository: Path) -> None:
    """A Python that runs does not make a whole environment."""
    (repository / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(repository / "bin" / "python3", repository / ".venv" / "bin" / "python")
    assert (0, ["venv", "pip"]) == _install(repository)[::2]
