"""A worker that is killed leaves no process of its own behind, whatever its children do."""

import os
import signal

import pytest

from tests.process.pool_workers import Family, Start, each, each_start_method, program
from tests.support.waiting import eventually

_ENDS = pytest.mark.parametrize("action", ["good", "sleep", "c"])


def _busy(start: Start, action: str, start_method: str) -> Family:
    """A worker with one child that has done, or does, this; all its processes are there."""
    family = start(
        program(each(action, seconds=1000), concurrency=2, pool={"start_method": start_method})
    )
    family.awaits(1, "end" if action == "good" else "start")
    family.awaits(2, "child")
    assert len(family.living()) == (5 if start_method == "forkserver" else 4)
    return family


@_ENDS
@each_start_method
def test_a_killed_parent_leaves_nothing(start: Start, action: str, start_method: str) -> None:
    """Children end with their parent, idle, asleep or in C with the interpreter's lock held."""
    family = _busy(start, action, start_method)
    family.process.kill()
    family.wait()
    eventually(family.is_gone, 5)


@each_start_method
def test_a_parent_killed_while_children_start(start: Start, start_method: str) -> None:
    """Children that have not begun to work end with it too."""
    family = start(program(concurrency=2, pool={"start_method": start_method}), TROUBLE="slow")
    family.awaits(1, "child")
    family.process.kill()
    family.wait()
    eventually(family.is_gone, 5)


def test_a_parent_killed_while_the_app_is_preloaded(start: Start) -> None:
    """A forkserver that is busy with an import ends with it too."""
    family = start(program(), TROUBLE="slow preload")
    family.awaits(1, "preload")
    family.process.kill()
    family.wait()
    eventually(family.is_gone, 5)


def test_a_child_that_left_its_group_takes_nobody_with_it(start: Start) -> None:
    """It ends with its parent; who else is in the group that it joined is none of its business."""
    family = start(program(each("leave group with another", seconds=1000)))
    family.awaits(1, "start")
    eventually(lambda: any("sleep" in command for command in family.living().values()))
    child = family.marks("start")[0]["pid"]
    eventually(lambda: os.getpgid(child) == os.getpgid(family.process.pid))
    family.process.kill()
    family.wait()
    eventually(lambda: len(family.living()) <= 1, 5)
    assert ["sleep 1000 "] == list(family.living().values())


@each_start_method
def test_a_second_signal_to_the_command_leaves_nothing(
    start: Start, amqp_url: str, queue_prefix: str, start_method: str
) -> None:
    """The second signal ends the command at once, and with it all children."""
    environment = {"QUEUEY_URL": amqp_url, "BROKER": amqp_url, "PREFIX": queue_prefix}
    app = "tests.process.pool_jobs:app"
    command = ["-m", "queuey_sync", "worker", app, "-P", "process", "-c", "2"]
    family = start([*command, "--start-method", start_method], **environment)
    family.awaits(2, "child")
    job = '{"what":"sleep","seconds":1000}'
    enqueue = start(["-m", "queuey_sync", "enqueue", app, "pool.act", job], **environment)
    assert 0 == enqueue.wait(), enqueue.log()
    family.awaits(1, "start")
    family.send(signal.SIGTERM)
    eventually(lambda: "a second signal ends the process now" in family.log())
    os.kill(family.process.pid, signal.SIGTERM)
    assert 128 + signal.SIGTERM == family.wait(5)
    eventually(family.is_gone, 5)
