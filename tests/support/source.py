"""The source of this project as syntax trees, for the tests that check how it is built."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "queuey_sync"


def python_files(*folders: str) -> list[Path]:
    """Every Python file under these folders of the repository, in order."""
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


@functools.cache
def tree_of(file: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


@functools.cache
def modules() -> dict[str, Path]:
    """The modules of the package by their full names; a folder's `__init__.py` has the folder's."""
    found = {}
    for file in python_files(PACKAGE):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found
