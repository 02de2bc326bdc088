"""The pytest plugin: one fixture. Whoever does not ask for it pays next to nothing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from queuey_sync.app import Queuey
    from queuey_sync.testing.jobs import MemoryJobs


@pytest.fixture
def queuey_memory() -> "Iterator[Callable[[Queuey[Any]], MemoryJobs]]":
    """Call it with an app, whose jobs are then in memory until the test ends: a `MemoryJobs`."""
    from queuey_sync.testing.jobs import use_memory  # noqa: PLC0415 - it imports the library

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(use_memory(app))
