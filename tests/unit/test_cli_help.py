"""The help of each command and the reference in the docs name every option and exit code."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from queuey_sync.cli.exits import Exit
from queuey_sync.cli.main import commands

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
_NAMES = sorted(commands.commands)


def _commands(name: str) -> list[tuple[str, ...]]:
    """The command of this name, or those of a group."""
    command = commands.commands[name]
    if isinstance(command, click.Group):
        return [(name, each) for each in command.commands]
    return [(name,)]


def _options(*path: str) -> list[click.Option]:
    command: click.Command = commands
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return [option for option in options if "--help" not in option.opts]


def _variable(option: click.Option) -> str:
    return "QUEUEY_" + option.opts[-1].removeprefix("--").replace("-", "_").upper()


def _section(heading: str) -> str:
    """The text of the reference under a heading, up to the next of that kind."""
    text = _REFERENCE.read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}\b.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found.group()


@pytest.mark.parametrize(
    "path", [path for name in _NAMES for path in _commands(name)], ids=" ".join
)
def test_help_names_every_option_with_its_variable(path: tuple[str, ...]) -> None:
    """The help of a command lists each option with its environment variable; itself it is last."""
    shown = " ".join(CliRunner().invoke(commands, [*path, "--help"]).output.split())
    assert shown.endswith(" -h, --help Show this message and exit.")
    for option in _options(*path):
        _, found, rest = shown.partition(f"{option.opts[-1]} ")
        assert found, option.opts
        assert f"[env var: {_variable(option)}" in rest.partition(" --")[0], option.opts


@pytest.mark.parametrize("name", _NAMES)
def test_the_reference_names_every_option_with_its_variable(name: str) -> None:
    """The docs have a section for each command, with a row for each option."""
    rows = _section("Options of every command") + _section(f"queuey-sync {name}")
    if "all options of `worker`" in rows:
        rows += _section("queuey-sync worker")
    for option in (each for path in _commands(name) for each in _options(*path)):
        spelled = ", ".join(f"`{spelling}" for spelling in option.opts).replace(", ", "`, ")
        value = "" if option.is_flag else f" {option.metavar}"
        assert f"| {spelled}{value}` | `{_variable(option)}` |" in rows


def test_the_reference_has_a_section_for_every_command_and_no_other() -> None:
    """Commands and sections are the same."""
    text = _REFERENCE.read_text(encoding="utf-8")
    assert _NAMES == sorted(re.findall(r"^## queuey-sync (\w+)", text, re.MULTILINE))


def test_the_reference_has_every_exit_code_and_no_other() -> None:
    """The table of exit codes is that of `Exit`."""
    rows = re.findall(r"^\| (\d+) \|", _section("Exit codes"), re.MULTILINE)
    assert [int(code) for code in Exit] == [int(row) for row in rows]
