"""The system checks of the setting ``QUEUEY``."""

from typing import Any

from django.core import checks
from django.core.management import CommandError, call_command
from django.test import SimpleTestCase, override_settings

from queuey_sync.contrib.django.checks import TAG

APP = "things.queues:app"
PLACE = {"APP": APP, "URL": "memory:"}
WRONG: list[tuple[str, Any, str]] = [
    ("queuey_sync.E001", [], "expected a dictionary"),
    ("queuey_sync.E001", {"APP": APP, "ULR": "memory:"}, "unknown key 'ULR'; there are APP, URL"),
    ("queuey_sync.E001", {"APP": "things.queues"}, "expected 'module:app'"),
    ("queuey_sync.E001", {"APP": "things.qeues:app"}, "there is no module `things.qeues`"),
    ("queuey_sync.E001", {"APP": "things.queues:ap"}, "there is no `ap` in things.queues"),
    ("queuey_sync.E001", {"APP": "things.queues:Queues"}, "this is no Queuey app"),
    ("queuey_sync.E002", {"APP": APP, "URL": "redis://host"}, "unknown scheme 'redis'"),
    ("queuey_sync.W001", {"APP": APP, "URL": "sqlite:///jobs.db"}, "relative to the folder"),
    ("queuey_sync.E006", {"APP": APP}, "nothing says where jobs wait"),
    ("queuey_sync.E004", PLACE | {"DEFAULTS": {"threads": 4}}, "no command has an option"),
    ("queuey_sync.E005", PLACE | {"DEFAULTS": {"concurrency": "many"}}, "'many' is not"),
    ("queuey_sync.E005", PLACE | {"DEFAULTS": {"job_timeout": "soon"}}, "soon"),
]


class Checks(SimpleTestCase):
    """What ``manage.py check`` says."""

    def test_good_settings_have_nothing_said_about_them(self) -> None:
        """Those of this site, for one."""
        assert checks.run_checks() == []

    def test_wrong_settings_are_named(self) -> None:
        """Each mistake has one message that names the key and the value."""
        for name, setting, text in WRONG:
            with self.subTest(setting), override_settings(QUEUEY=setting):
                found = checks.run_checks(tags=[TAG])
                assert [one.id for one in found] == [name]
                assert text in found[0].msg
                assert "QUEUEY" in found[0].msg

    def test_queues_of_tasks_must_be_queues_of_the_app(self) -> None:
        """The message lists those that there are."""
        backend = "queuey_sync.contrib.django.tasks.QueueyBackend"
        for params, name in (
            ({"QUEUES": ["nowhere"]}, "queuey_sync.E103"),
            ({"QUEUES": ["default"], "OPTIONS": {"RETRIES": 3}}, "queuey_sync.E101"),
            ({"QUEUES": ["default"], "OPTIONS": {"ENQUEUE_ON_COMMIT": "no"}}, "queuey_sync.E104"),
            ({"QUEUES": ["default"], "OPTIONS": {"DATABASE": "nope"}}, "queuey_sync.E105"),
        ):
            with self.subTest(params):
                with override_settings(TASKS={"default": {"BACKEND": backend, **params}}):
                    assert [one.id for one in checks.run_checks()] == [name]

    def test_queues_of_tasks_are_a_list(self) -> None:
        """The letters of a name are no queues."""
        backend = "queuey_sync.contrib.django.tasks.QueueyBackend"
        tasks = {"default": {"BACKEND": backend, "QUEUES": "default"}}
        with self.assertLogs("queuey_sync", "ERROR"), override_settings(TASKS=tasks):
            (found,) = checks.run_checks(tags=[TAG])
        assert "expected a list of names" in found.msg

    def test_a_deployment_needs_a_place_that_workers_see(self) -> None:
        """Jobs in the memory of a web process are seen by nobody else."""
        with override_settings(QUEUEY=PLACE):
            found = checks.run_checks(tags=[TAG], include_deployment_checks=True)
        assert [one.id for one in found] == ["queuey_sync.W003"]

    def test_call_command_runs_a_command_and_raises_what_fails(self) -> None:
        """The exit code is that of the error."""
        call_command("queuey", "declare")
        call_command("queuey", "drain", "--max-jobs", "1", skip_checks=False)
        with self.assertRaises(CommandError) as raised:
            call_command("queuey", "drain", "--max-jobs", "0")
        assert raised.exception.returncode == 2
