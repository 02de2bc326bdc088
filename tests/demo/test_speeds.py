"""What the demo says of its speed, and of files that are alike."""

import importlib
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.source import ROOT


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs/examples"))


@pytest.fixture
def speeds() -> Any:
    """The module under test."""
    return importlib.import_module("compress.speeds")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (100, "50 files/s, 2.0 MB/s, which is 2.00 x that of --pool thread (25 files/s, 1.0 MB/s)"),
        (10, "50 files/s, 2.0 MB/s; --fresh --pool thread shows the difference"),
    ],
    ids=["the same files", "other files"],
)
def test_only_the_same_files_are_compared(
    speeds: Any, tmp_path: Path, files: int, expected: str
) -> None:
    """What was kept of earlier runs is compared if their work was the same."""
    speeds.Speeds(tmp_path).keep("thread", speeds.Speed(files, 4_000_000, 4))
    speeds.Speeds(tmp_path).keep("process", speeds.Speed(100, 4_000_000, 2))
    assert expected == speeds.Speeds(tmp_path).compared("process")


def test_a_speed_that_was_never_measured(speeds: Any, tmp_path: Path) -> None:
    """After runs that were stopped there is none."""
    assert "unknown: more than one run did the work" == speeds.Speeds(tmp_path).compared("thread")


def test_files_with_nearly_the_same_words_are_alike() -> None:
    """One word in a hundred changes little; every other word changes everything."""
    jobs: Any = importlib.import_module("compress.jobs")
    records: Any = importlib.import_module("compress.records")
    rng = random.Random(1)
    words = [rng.randbytes(8).hex().encode() for _ in range(200)]
    other = [word if number % 2 else word[::-1] for number, word in enumerate(words)]
    files = [b" ".join(words), b"\n".join([*words[2:], b"new"]), b" ".join(other), b""]
    totals = records.Totals(Path(), fingerprints=[jobs.fingerprint(file) for file in files])
    assert 2 == totals.alike()
