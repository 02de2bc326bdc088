"""The files of the page about deployment: systemd reads its unit, and each command is a worker."""

import configparser
import json
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Commands
from tests.support.source import ROOT

_PAGE = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")


def _block(language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
    return str(block)


def _unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(_block("ini"))
    return unit


def _after(start: str, text: str) -> str:
    (found,) = re.findall(rf"^ *{re.escape(start)}(.*)$", text, re.MULTILINE)
    return str(found)


_COMMANDS = {
    "systemd": shlex.split(_unit()["Service"]["ExecStart"]),
    "docker": json.loads(_after("CMD ", _block("dockerfile"))),
    "kubernetes": json.loads(_after("command: ", _block("yaml"))),
}


@pytest.mark.parametrize("platform", _COMMANDS)
def test_the_command_of_each_platform_is_a_worker(
    commands: Commands, tmp_path: Path, platform: str
) -> None:
    """It works from the folder of the app with a URL in the environment, and stops with 0."""
    program, *arguments = _COMMANDS[platform]
    assert "queuey-sync" == Path(program).name
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(Path(__file__).parent / "apps" / "shop.py", package / "jobs.py")
    there = ("sh", "-c", f'cd {tmp_path} && exec "$@"', "sh")
    worker = commands.start(*arguments, under=there, QUEUEY_URL="memory:")
    worker.says("60s a job")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(5), worker.err


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """It knows every key and finds nothing wrong, with a program that is there."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "shop-worker.service"
    unit.write_text(
        re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", _block("ini"), flags=re.MULTILINE)
    )
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (0, "") == (done.returncode, done.stderr)


def test_grace_periods_are_longer_than_the_time_limit() -> None:
    """Each platform waits longer than a job may take."""
    limits = {command[-1] for command in _COMMANDS.values()}
    assert {"60s"} == limits
    assert "90s" == _unit()["Service"]["TimeoutStopSec"]
    assert "--stop-timeout=90 " in _PAGE
    assert _after("terminationGracePeriodSeconds: ", _block("yaml")).startswith("90 ")
