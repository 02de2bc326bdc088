"""The size of things: what fits on a page is read, and the rest is not.

That every module and public name of the package has a docstring is checked by ruff.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.support.source import PACKAGE, ROOT, python_files, tree_of

MODULE_LINES = 400
FUNCTION_LINES = 60
FOLDER_MODULES = 12
VAGUE_NAMES = {"common", "helpers", "manager", "misc", "utils"}

FILES = [*python_files(PACKAGE, "tests"), ROOT / "scripts" / "broker"]


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_modules_and_functions_are_short(file: Path) -> None:
    """No module and no function is longer than its limit; a function's docstring counts not."""
    module_lines = file.read_text(encoding="utf-8").count("\n")
    assert module_lines <= MODULE_LINES
    long = {
        node.name: lines
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := _lines(node)) > FUNCTION_LINES
    }
    assert long == {}


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    last = function.end_lineno
    assert last is not None
    docstring = ast.get_docstring(function, clean=False)
    return last - function.lineno + 1 - (len(docstring.splitlines()) if docstring else 0)


def test_folders_are_small() -> None:
    """A folder of the package holds few modules, its `__init__` and `__main__` not counted."""
    counts = Counter(
        file.parent for file in python_files(PACKAGE) if not file.stem.startswith("__")
    )
    assert {_name(folder): n for folder, n in counts.items() if n > FOLDER_MODULES} == {}


def test_no_module_has_a_name_that_invites_everything() -> None:
    """A helper lives beside its one user, or in a module named for what it does."""
    assert [_name(file) for file in python_files(PACKAGE) if file.stem in VAGUE_NAMES] == []


@pytest.mark.parametrize("file", python_files("tests"), ids=_name)
def test_tests_say_what_they_show(file: Path) -> None:
    """Every test has a docstring that states the behaviour."""
    silent = [
        node.name
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []
