"""Every Python block of the documentation runs.

The blocks of one page are one program, in their order. A block whose first line is a comment with a
path (`# shop/jobs.py`) is written to that file, and imported in its place. A block after a comment
``<!-- no-run: reason -->`` is left out. A page runs in an interpreter and a folder of its own, with
QUEUEY_URL naming a store in it. Files that are called ``test_….py`` are then run by pytest.
"""

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.source import ROOT

PAGES = [page for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))] if page.exists()]

_BLOCK = re.compile(
    r"(?P<skip><!-- no-run: [^>]+ -->\s*)?^(?P<indent> *)```python\n(?P<code>.*?)^ *```",
    re.DOTALL | re.MULTILINE,
)
_PATH = re.compile(r"# (?P<path>[\w/]+\.py)\n")


@dataclass
class Program:
    """What a page says: a program whose line numbers are the page's, and the files beside it."""

    lines: list[str]
    files: dict[str, str] = field(default_factory=dict)


def _program(text: str) -> Program:
    program = Program([""] * text.count("\n"))
    for block in _BLOCK.finditer(text):
        if block["skip"]:
            continue
        code = textwrap.dedent(block["code"])
        first = text.count("\n", 0, block.start("code"))
        if named := _PATH.match(code):
            program.files[named["path"]] = code
            module = named["path"].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            code = f"import {module}\n"
        for number, line in enumerate(code.splitlines(), first):
            program.lines[number] = line
    return program


def _run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = _program(text)
    for path, code in program.files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
    # Imported, not run, so that jobs declared on a page have a module to be named after.
    (folder / "page.py").write_text("\n".join(program.lines) + "\n")
    done = _python(folder, "-c", "import page")
    if done.returncode == 0 and any(Path(path).name.startswith("test_") for path in program.files):
        plugins = ("-p", "queuey_sync.testing.plugin", "-p", "no:cacheprovider")
        return _python(folder, "-m", "pytest", "-q", *plugins)
    return done


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-B", "-W", "error", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": path,
            "QUEUEY_URL": "sqlite:///jobs.db",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # ours is named, installed or not
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """Every block of the page runs, in order, without an error or a warning."""
    done = _run(page.read_text(encoding="utf-8"), tmp_path)
    assert done.returncode == 0, done.stderr or done.stdout


EXAMPLE = """
```python
# shop/jobs.py
NUMBER = 1
```

1. Indented, in a list:

   ```python
   from shop.jobs import NUMBER
   ```

<!-- no-run: it fails -->
```python
raise SystemExit("skipped blocks must not run")
```

```python
assert NUMBER == 2
```
"""


def test_blocks_share_names_and_errors_have_the_line_of_the_page(tmp_path: Path) -> None:
    """Files are written, later blocks see earlier names, and a failure points into the page."""
    done = _run(EXAMPLE, tmp_path)
    assert "AssertionError" in done.stderr
    assert f"line {EXAMPLE.splitlines().index('assert NUMBER == 2') + 1}," in done.stderr
    assert _run(EXAMPLE.replace("== 2", "== 1"), tmp_path).returncode == 0


def test_the_tests_of_a_page_are_run(tmp_path: Path) -> None:
    """A file of tests is not just imported."""
    page = "```python\n# test_one.py\ndef test_one():\n    assert 1 == 2\n```\n"
    assert "1 failed" in _run(page, tmp_path).stdout
