"""Real processes of ``flask``: servers, workers and other commands, for the apps beside this."""

import configparser
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Commands, Running
from tests.support.source import ROOT

collect_ignore = ["apps"]

EXAMPLES = ROOT / "docs" / "examples"


class FlaskCommands(Commands):
    """Starts ``flask --app …``, with a database and a store of jobs in files."""

    apps = Path(__file__).parent / "apps"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        installed = _install_entry_points(folder)
        self.environment |= {
            "PYTHONPATH": os.pathsep.join(map(str, (installed, ROOT, EXAMPLES, self.apps))),
            "FLASK_SQLALCHEMY_DATABASE_URI": f"sqlite:///{folder}/rows.db",
            "LEDGER_MARKS": str(self.marks),
            "QUEUEY_URL": f"sqlite:///{folder}/jobs.db",
        }

    def flask(self, app: str, *arguments: str, **settings: Any) -> Running:
        """Start a command of this app."""
        return self.start(*arguments, python=("-m", "flask", "--app", app), **settings)

    def run_flask(self, app: str, *arguments: str, **settings: Any) -> Running:
        """Run a command of this app to its end."""
        running = self.flask(app, *arguments, **settings)
        running.wait()
        return running

    def succeed(self, app: str, *arguments: str, **settings: Any) -> Running:
        """Run a command of this app, which must succeed."""
        done = self.run_flask(app, *arguments, **settings)
        assert 0 == done.wait(), done.err
        return done

    def enqueue(self, *whats: str) -> None:
        """Enqueue jobs of the ledger."""
        lines = self.marks.with_name("lines")
        lines.write_text("".join(json.dumps({"what": what}) + "\n" for what in whats))
        with lines.open("rb") as file:
            self.succeed("ledger", "queuey", "enqueue", "ledger.do", stdin=file)

    def marked_so_far(self) -> Counter[str]:
        """How often the ledger has left each mark."""
        return Counter(self.marks.read_text().splitlines() if self.marks.exists() else [])


def _install_entry_points(folder: Path) -> Path:
    """Have programs find the entry points of setup.cfg, whether the library is installed or not."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    groups = dict(setup["options.entry_points"])
    info = folder / "installed" / "queuey_sync-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: queuey-sync\nVersion: 0\n")
    text = "\n".join(f"[{group}]\n{entries.strip()}" for group, entries in groups.items())
    (info / "entry_points.txt").write_text(text)
    return info.parent


@pytest.fixture
def flask(tmp_path: Path) -> Iterator[FlaskCommands]:
    """Starts commands of Flask apps; those that still run are ended with the test."""
    started = FlaskCommands(tmp_path)
    yield started
    started.close()


THREADS = ("--pool", "thread")
POOLS = pytest.mark.parametrize(
    "pool",
    [
        pytest.param(THREADS, id="threads"),
        pytest.param(("--pool", "process", "--start-method", "forkserver"), id="forkserver"),
        pytest.param(("--pool", "process", "--start-method", "spawn"), id="spawn"),
    ],
)
"""For tests of what holds wherever handlers run."""
