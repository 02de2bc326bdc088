"""What the tests of a user's jobs need: a memory in place of the broker, and jobs that run in it.

Nothing in the library imports it. Each name is imported when it is first asked for: pytest loads
`plugin.py`, and with it this, in every run on a machine that has the library. Begin with `jobs.py`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuey_sync.backends.memory.clock import ManualClock
    from queuey_sync.testing.jobs import MemoryJobs, run_pending, use_memory

__all__ = ["ManualClock", "MemoryJobs", "run_pending", "use_memory"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "backends.memory.clock" if name == "ManualClock" else "testing.jobs"
    return getattr(importlib.import_module(f"queuey_sync.{home}"), name)
