"""How a child process is started."""

from multiprocessing.process import BaseProcess
from typing import cast

import pytest

from queuey_sync.pools.child_process import _start


class Process:
    """One whose start fails in these ways, one after the other, and then succeeds."""

    def __init__(self, *faults: Exception) -> None:
        self._faults = list(faults)
        self.started = False

    def start(self) -> None:
        if self._faults:
            raise self._faults.pop(0)
        self.started = True


def test_a_forkserver_that_is_about_to_be_found_dead() -> None:
    """It refuses for a moment, until multiprocessing knows that it needs another one."""
    process = Process(ConnectionRefusedError(), ConnectionRefusedError())
    _start(cast("BaseProcess", process))
    assert process.started


def test_other_faults_are_not_tried_again() -> None:
    """Something may have begun, and must not begin twice."""
    process = Process(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        _start(cast("BaseProcess", process))
    assert not process.started
