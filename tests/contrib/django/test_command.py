"""``manage.py queuey``, as real processes: the same commands and codes as `queuey-sync`."""

import json
from typing import Any

import pytest

from tests.contrib.django.conftest import Site

FIND = ("queuey", "enqueue", "find", '{"name": "a"}')


@pytest.mark.parametrize(
    "pool",
    [
        (),
        ("--pool", "process"),
        ("--pool", "process", "--start-method", "spawn"),
    ],
    ids=["threads", "forkserver", "spawn"],
)
def test_models_are_there_in_every_pool(migrated: Site, pool: tuple[str, ...]) -> None:
    """Django is set up before a job's module is imported, in children too (bug report 23)."""
    migrated.manage(*FIND)
    migrated.manage("queuey", "drain", *pool)
    migrated.marked("a missing attempt 1")


def test_a_worker_stops_on_sigterm(migrated: Site) -> None:
    """It finishes what runs, closes what is open, and exits with 0."""
    worker = migrated.start("manage.py", "queuey", "worker")
    migrated.manage(*FIND)
    migrated.marked("a missing attempt 1")
    assert worker.stop() == 0
    assert "received SIGTERM" in worker.err


def test_the_log_of_a_job_has_its_correlation_id(migrated: Site) -> None:
    """In a child process as well."""
    migrated.manage(*FIND, "--correlation-id", "request-7")
    drain = migrated.manage("queuey", "drain", "--pool", "process")
    assert "looked for a [job_id=" in drain.err
    assert "correlation_id=request-7]" in drain.err


def test_queues_and_summaries_are_those_of_the_command_line(migrated: Site) -> None:
    """Results go to standard output, and documents are JSON."""
    migrated.manage("queuey", "declare")
    migrated.manage(*FIND)
    shown = json.loads(migrated.manage("queuey", "queues", "--json").out)
    assert shown["queues"]["things.default"]["ready"] == 1
    summary = json.loads(migrated.manage("queuey", "drain", "--json").out)
    assert summary["succeeded"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("nope",), 2, "No such command 'nope'; see manage.py queuey --help"),
        (("worker", "--threads", "3"), 2, "see manage.py queuey worker --help"),
        (("worker", "things.queues:app"), 2, "unexpected extra argument"),
        (("drain", "--url", "redis://host"), 2, "--url: unknown scheme"),
        (("enqueue", "nothing", "{}"), 2, "the app has no job 'nothing'"),
    ],
)
def test_mistakes_are_one_line_and_a_code(
    site: Site, arguments: tuple[str, ...], code: int, text: str
) -> None:
    """The line names the command as its user calls it."""
    done = site.manage("queuey", *arguments, code=code)
    assert text in done.err
    assert len(done.err.splitlines()) == 1


def test_wrong_settings_end_a_command_with_3(site: Site) -> None:
    """The system checks come first, and say what to write."""
    done = site.manage("queuey", "worker", code=3, THINGS_APP="things.queues:ap")
    assert "there is no `ap` in things.queues" in done.err
    done = site.manage("queuey", "worker", code=3, THINGS_URL="redis://host")
    assert "QUEUEY['URL']: url: unknown scheme 'redis'" in done.err


def test_options_come_from_the_command_the_environment_and_the_settings(migrated: Site) -> None:
    """In that order."""

    def threads(*arguments: str, **environment: Any) -> str:
        limits = ("drain", "--log-level", "INFO", *arguments)
        log = migrated.manage("queuey", *limits, **environment).err
        return log.partition(" with ")[2].partition(" thread")[0]

    assert threads() == "2"
    assert threads(QUEUEY_CONCURRENCY="3") == "3"
    assert threads("--concurrency", "5", QUEUEY_CONCURRENCY="3") == "5"


def test_options_of_every_django_command_work(site: Site) -> None:
    """Wherever they stand."""
    (site.folder / "elsewhere").mkdir()
    (site.folder / "elsewhere" / "other_settings.py").write_text(
        "from settings import *\nQUEUEY = {**QUEUEY, 'URL': QUEUEY['URL'] + '?lease=7s'}\n"
    )
    path = str(site.folder / "elsewhere")
    options = ("--settings", "other_settings", f"--pythonpath={path}", "--no-color", "-v", "0")
    shown = site.manage("queuey", *options[:2], "declare", *options[2:]).out
    assert shown.splitlines() == ["things.default", "things.flat", "things.retried"]
    done = site.manage("queuey", "declare", "--settings", "missing_settings", code=1)
    assert "missing_settings" in done.err


def test_help_names_the_commands(site: Site) -> None:
    """However it is asked for."""
    for arguments in (("help", "queuey"), ("queuey", "--help"), ("queuey", "-h")):
        assert "Usage: manage.py queuey" in site.manage(*arguments).out
    assert "queuey" in site.manage("help").out


@pytest.mark.parametrize("pool", [(), ("--pool", "process")], ids=["threads", "processes"])
def test_a_site_of_tasks_alone_needs_no_app(site: Site, pool: tuple[str, ...]) -> None:
    """The queues are those of ``TASKS``."""
    (site.folder / "tasks_alone.py").write_text(
        "from settings import *\nQUEUEY = {'URL': QUEUEY['URL']}\n"
        "INSTALLED_APPS = [app for app in INSTALLED_APPS if app != 'things']\n"
    )
    environment: dict[str, Any] = {
        "DJANGO_SETTINGS_MODULE": "tasks_alone",
        "PYTHONPATH": f"{site.environment['PYTHONPATH']}:{site.folder}",
    }
    code = "from things.tasks import note; note.enqueue('alone')"
    site.manage("shell", "-v", "0", "-c", code, **environment)
    site.manage("queuey", "drain", *pool, **environment)
    site.marked("note ('alone',) {}")
