"""The jobs of child processes: the work of one, how much of it takes a while, and what it leaves.

Both sides import it: `recording.py` in the measured processes, `running.py` in their parent.
"""

import struct
import time

RUN = struct.Struct("qq")
"""What a job leaves: when its handler began and ended, on the clock of ``time.monotonic_ns()``."""

_TRIAL_LOOPS = 200_000
_TRIALS = 20


def burn(loops: int) -> int:
    """Keep one processor busy, in pure Python."""
    total = 0
    for number in range(loops):
        total += number * number % 7
    return total


def loops_for(seconds: float) -> int:
    """How many loops take so long here; the fastest trial counts, which nothing else disturbed."""
    fastest = min(_time(_TRIAL_LOOPS) for _ in range(_TRIALS))
    return round(_TRIAL_LOOPS * seconds / fastest)


def _time(loops: int) -> float:
    began = time.perf_counter()
    burn(loops)
    return time.perf_counter() - began
