"""Tests of the pytest plugin, in the tests of a small project that has the library installed."""

import configparser
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.source import ROOT

SHOP = """
    from queuey_sync import Fatal, Job, Queuey, QueueSet, queue

    class Queues(QueueSet):
        EMAILS = queue()

    class SendEmail(Job[Queues], queue=Queues.EMAILS, name="mail.send"):
        to: str

    app = Queuey(Queues, url="amqp://127.0.0.1:1")
    enqueue = app.enqueue

    @app.handler
    def send_email(job: SendEmail) -> None:
        if "@" not in job.to:
            raise Fatal("no address")

    def sign_up(address: str) -> None:
        enqueue(SendEmail(to=address))
"""

USER = """
    import pytest
    import shop
    from queuey_sync.testing import run_pending

    @pytest.fixture
    def jobs(queuey_memory):
        return queuey_memory(shop.app)

    def test_sign_up(jobs):
        shop.sign_up("ada@example.org")
        assert [job.to for job in jobs.enqueued(shop.SendEmail)] == ["ada@example.org"]
        assert run_pending(shop.app) == 1
        assert jobs.dead() == []

    def test_wrong_address(jobs):
        assert jobs.enqueued(shop.SendEmail) == [], "each test has a memory of its own"
        shop.sign_up("nobody")
        jobs.run()
        assert [dead.reason for dead in jobs.dead()] == ["fatal error: no address"]

    def test_own_backend_again():
        assert type(shop.app.backend()).__name__ == "RabbitMQBackend"
"""

STRANGER = """
    import sys

    def test_nothing_is_loaded():
        ours = {name for name in sys.modules if name.startswith("queuey_sync")}
        assert ours <= {"queuey_sync", "queuey_sync.testing", "queuey_sync.testing.plugin"}
        assert "msgspec" not in sys.modules
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty folder, where the library is installed as setup.cfg says."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    info = tmp_path / "queuey_sync-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: queuey_sync\nVersion: 9\n")
    points = setup["options.entry_points"]["pytest11"]
    (info / "entry_points.txt").write_text(f"[pytest11]{points}\n")
    return tmp_path


def _run_tests(project: Path, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (project / f"{name}.py").write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_user_tests_jobs_without_a_broker(project: Path) -> None:
    """The fixture gives each test its own memory, and the app its own backend back."""
    done = _run_tests(project, shop=SHOP, test_shop=USER)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_who_does_not_use_it_does_not_notice(project: Path) -> None:
    """pytest loads the plugin in every project, but nothing of the library with it."""
    done = _run_tests(project, test_stranger=STRANGER)
    assert done.returncode == 0, done.stdout
