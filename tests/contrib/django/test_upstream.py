"""Django's own tests of task back-ends, with ours in place of theirs that keeps tasks in a list.

They are in Django's source distribution alone: ``scripts/test-django`` has it, and says where.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.contrib.django.conftest import Site

# Read here because the tests themselves run without any QUEUEY_ variable.
_SOURCE = os.environ.get("QUEUEY_DJANGO_SOURCE", "")
_TESTS = Path(_SOURCE) / "tests"
_THEIRS = "django.tasks.backends.dummy"

LIST_OF_RESULTS = """
import copy
from django.tasks.exceptions import TaskResultDoesNotExist
from queuey_sync.contrib.django.tasks import QueueyBackend

class DummyBackend(QueueyBackend):
    # Theirs keeps results, and the tests ask for them; ours says that it does not.
    def __init__(self, alias, params):
        super().__init__(alias, params)
        self.results = []

    def enqueue(self, task, args, kwargs):
        self.results.append(super().enqueue(task, args, kwargs))
        return copy.deepcopy(self.results[-1])

    def get_result(self, result_id):
        for result in self.results:
            if result.id == result_id:
                return result
        raise TaskResultDoesNotExist(result_id)

    def clear(self):
        self.results.clear()
"""
SETTINGS = """
from test_sqlite import *
QUEUEY = {"APP": "queues_of_upstream:app", "URL": "memory:"}
"""
QUEUES = """
from queuey_sync import Queuey, QueueSet, queue

class Queues(QueueSet):
    DEFAULT = queue()
    QUEUE_1 = queue()
    QUEUE_2 = queue(name="queue-2")

app = Queuey(Queues, url="memory:")
"""


@pytest.mark.skipif(not (_TESTS / "tasks").is_dir(), reason="no sources of Django: test-django")
def test_djangos_own_tests_pass(tmp_path: Path) -> None:
    """Those of its back-end without a worker, and those of tasks as such."""
    tests = tmp_path / "tests"
    shutil.copytree(_TESTS, tests, ignore=lambda _, names: [n for n in names if n == "gis_tests"])
    (tests / "list_of_results.py").write_text(LIST_OF_RESULTS)
    (tests / "settings_of_upstream.py").write_text(SETTINGS)
    (tests / "queues_of_upstream.py").write_text(QUEUES)
    for file in (tests / "tasks" / "test_tasks.py", tests / "tasks" / "test_dummy_backend.py"):
        text = file.read_text()
        assert _THEIRS in text
        file.write_text(
            text.replace(f'"{_THEIRS}.DummyBackend"', '"list_of_results.DummyBackend"').replace(
                f"from {_THEIRS} import", "from list_of_results import"
            )
        )
    site = Site(tests, tmp_path)
    # `test_check` wants no finding, and ours is that the app is not among INSTALLED_APPS.
    done = site.run(
        "runtests.py",
        "tasks.test_tasks",
        "tasks.test_dummy_backend",
        "--settings=settings_of_upstream",
        "--parallel=1",
        PYTHONWARNINGS="default",
        code=1,
    )
    failed = [line for line in done.err.splitlines() if line.startswith(("FAIL:", "ERROR:"))]
    assert [line.split()[1] for line in failed] == ["test_check"]
