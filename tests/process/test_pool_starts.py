"""How children begin: what they find imported, and how a worker ends whose children cannot."""

import re
import time
from pathlib import Path

import pytest

from tests.process.pool_workers import Family, Start, each, each_start_method, program
from tests.support.waiting import eventually

_SCRIPT = """
import sys
from queuey_sync import Job, ProcessPool, Queuey, QueueSet, queue

class Queues(QueueSet):
    WORK = queue()

class Hello(Job[Queues], queue=Queues.WORK, name="hello"):
    name: str

app = Queuey(Queues, url="memory:")

@app.handler
def hello(job: Hello) -> None:
    print("hello", job.name, flush=True)

def main():
    app.enqueue(Hello("ada"))
    worker = app.worker(pool=ProcessPool(start_method=sys.argv[1]), concurrency=2)
    if len(sys.argv) > 2:
        worker.handle().shutdown()
    worker.run()
"""


def _script(tmp_path: Path, ending: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(_SCRIPT + ending)
    return str(path)


@each_start_method
def test_b23_handlers_in_the_script_itself(start: Start, tmp_path: Path, start_method: str) -> None:
    """Report 23: what a guarded script registers as `__main__` runs in its children."""
    guarded = 'if __name__ == "__main__":\n    main()\n'
    family = start([_script(tmp_path, guarded), start_method])
    eventually(lambda: "hello ada" in family.log())
    assert "Warning" not in family.log()
    family.process.kill()
    family.wait()
    eventually(family.is_gone, 5)


@each_start_method
def test_b23_a_script_without_a_guard(start: Start, tmp_path: Path, start_method: str) -> None:
    """Report 23: a script that each child would run again ends with an error, and no storm."""
    family = start([_script(tmp_path, "main()\n"), start_method])
    most = 0
    deadline = time.monotonic() + 20
    while family.process.poll() is None and time.monotonic() < deadline:
        most = max(most, len(family.living()))
        time.sleep(0.02)
    assert family.process.poll() not in (None, 0), family.log()
    assert most <= 1 + 2 + 2 * 2, "no child has children"
    assert "if __name__ == '__main__':" in family.log()
    assert "StartError: a child process could not start: it died as it started" in family.log()
    eventually(family.is_gone, 5)


def test_b23_the_app_is_imported_by_the_forkserver(start: Start) -> None:
    """Report 23: children are forked with the module of the handlers already imported."""
    family = start(program(each("good"), concurrency=2))
    family.awaits(2, "child")
    for child in family.marks("child"):
        assert child["parent"] == child["imported_by"] != family.process.pid
    assert 0 == family.stop()


def test_b23_children_of_a_parent_whose_threads_log(start: Start) -> None:
    """Report 23: of 100 children that are created while 8 threads log, none hangs."""
    jobs = each(*["good"] * 100)
    family = start(program(jobs, concurrency=2, pool={"max_jobs_per_child": 1}), NOISE="1")
    family.awaits(100, "end", timeout=60)
    assert 100 == len({one["pid"] for one in family.marks("end")})
    assert 0 == family.stop()
    assert "DeprecationWarning" not in family.log()
    eventually(family.is_gone, 5)


def test_b23_no_child_holds_a_socket_of_the_worker(
    start: Start, amqp_url: str, queue_prefix: str
) -> None:
    """Report 23: the broker's socket is the parent's alone."""
    family = start(program(each("sockets")), BROKER=amqp_url, PREFIX=queue_prefix)
    family.awaits(1, "end")
    found = family.marks("end")[0]["told"]
    assert len(found["worker"]) >= 2
    assert not set(found["worker"]) & set(found["child"])
    assert 0 == family.stop()


_TROUBLES = {
    "import": "OSError: no such library",
    "on_start": "StartError: a child process could not start: on_start begin: OSError: no such",
    "initializer": "StartError: a child process could not start: OSError: no such log",
    "stray thread": "StartError: a child process could not start: OSError: with a thread left",
    "leaves": "StartError: a child process could not start: it died as it started (exit code 7)",
}


@pytest.mark.parametrize("trouble", _TROUBLES)
@each_start_method
def test_a_child_that_cannot_start(start: Start, start_method: str, trouble: str) -> None:
    """The worker ends within seconds and tells the reason; the jobs stay on their queue."""
    jobs = each("good", "good", "good")
    family = start(
        program(jobs, concurrency=2, pool={"start_method": start_method}), TROUBLE=trouble
    )
    _ends_with(family, _TROUBLES[trouble])
    assert [3] == [one["pending"] for one in family.marks("left")]


@each_start_method
def test_a_memory_limit_that_is_far_too_small(start: Start, start_method: str) -> None:
    """A child that cannot even begin within its limit ends the worker."""
    pool = {"start_method": start_method, "child_memory_limit": 1_000_000}
    family = start(program(each("good"), concurrency=2, pool=pool))
    _ends_with(family, "child process could not start: child_memory_limit: 1000000 bytes")
    assert [1] == [one["pending"] for one in family.marks("left")]


@each_start_method
def test_an_app_that_only_a_child_cannot_import(
    start: Start, amqp_url: str, queue_prefix: str, start_method: str
) -> None:
    """The command tells the reason and exits 3."""
    command = ["-m", "queuey_sync", "worker", "tests.process.pool_jobs:app", "-P", "process"]
    environment = {"QUEUEY_URL": amqp_url, "BROKER": amqp_url, "PREFIX": queue_prefix}
    family = start([*command, "--start-method", start_method], TROUBLE="import", **environment)
    assert 3 == family.wait(10), family.log()
    assert "could not start: OSError: no such library" in family.log()
    assert "Traceback" not in family.log()
    eventually(family.is_gone, 5)


def _ends_with(family: Family, reason: str) -> None:
    """The worker ends by itself, for this reason, and after no more than one try for each slot."""
    assert family.wait(12) not in (0, None), family.log()
    assert reason in family.log()
    assert len(family.marks("child")) <= 2
    assert [] == family.marks("start")
    assert re.search(r"settle failures: 0", family.log()), family.log()
    eventually(family.is_gone, 5)
