"""Runs mypy and pyright over the files beside this one, and compares what they say with the marks.

Each checker runs once, over the whole folder; every file is a test for each of them.
"""

import functools
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = sorted([*HERE.glob("accepted*.py"), *HERE.glob("rejected*.py")])
MARK = re.compile(r"  # E(?: (mypy|pyright))?$", re.MULTILINE)

Errors = Mapping[str, Mapping[int, list[str]]]
"""The texts of the errors, by the name of the file and the line."""


@functools.cache
def mypy_errors() -> Errors:
    """What ``mypy --strict`` says of the whole folder."""
    output = _run("mypy", "--strict", "--no-pretty", *map(str, FILES))
    return _collect(re.findall(r"^(.+?\.py):(\d+): error: (.*)$", output, re.MULTILINE))


@functools.cache
def pyright_errors() -> Errors:
    """What pyright says of the whole folder."""
    output = _run("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(HERE))
    report = json.loads(output[output.index("{") :])
    return _collect(
        (one["file"], one["range"]["start"]["line"] + 1, one["message"])
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    )


CHECKERS = {"mypy": mypy_errors, "pyright": pyright_errors}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("checker", CHECKERS)
def test_exactly_the_marked_lines_are_errors(checker: str, path: Path) -> None:
    """The checker reports every line that is marked for it, and no line that is not."""
    pytest.importorskip(checker)
    found = CHECKERS[checker]().get(path.name, {})
    marked = {
        number
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if (mark := MARK.search(line)) and mark[1] in (None, checker)
    }
    unmarked = {number: texts for number, texts in found.items() if number not in marked}
    assert ({}, set()) == (unmarked, marked - set(found))


def test_only_rejected_files_have_marks() -> None:
    """An accepted file expects no error, and a rejected one expects some."""
    marks = {path.name: len(MARK.findall(path.read_text())) for path in FILES}
    assert {path.name for path in HERE.glob("rejected*.py")} == {
        name for name, count in marks.items() if count
    }


def _run(checker: str, *options: str) -> str:
    command = [sys.executable, "-m", checker, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def _collect(reports: Iterable[tuple[str, int | str, str]]) -> Errors:
    errors: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file, line, text in reports:
        errors[Path(file).name][int(line)].append(text)
    return errors
