"""The status file of a worker: what it writes there about itself, and what that means.

It is written by the thread in `Worker.run`, once a second, so that it grows old when that stands
still. Whoever reads it needs no app and no broker, and takes milliseconds: this imports nothing but
the standard library. Times are on the clock of ``time.monotonic()``, which all of a
machine share; what ``queuey-sync health`` and ``jobs`` make of it is in `cli/commands/health.py`.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

State = Literal["starting", "connecting", "working", "stopping", "failed", "stopped"]

_FRESH = 10.0
"""Seconds after which a file that is not written, or a thread that does not turn, is taken for
stuck; a busy machine may take some of them."""
_START = 120.0
"""The same while a worker starts: its child processes may have much to import."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs: who it is, and since when."""

    job_id: str
    job_type: str
    queue: str
    attempt: int
    began: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a worker says of itself.

    Attributes:
        pid: Its process.
        state: What it is doing.
        written: When this was written.
        turned: When the thread that talks to the broker last went round.
        concurrency: How many jobs it can run at once.
        overdue: How many of its slots are held by jobs over their time limit.
        jobs: What runs now.
        counts: What was done so far, by queue.
        settle_failures: How many jobs ran without the broker hearing of it.
        error: What ends it, if something does.
    """

    pid: int
    state: State
    written: float
    turned: float
    concurrency: int
    overdue: int = 0
    jobs: Sequence[RunningJob] = ()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    settle_failures: int = 0
    error: str | None = None

    def why_not_live(self, now: float) -> str | None:
        """Why it should be started again; None if there is no reason."""
        age = now - self.written
        if self.state == "stopped":
            return f"worker {self.pid} has stopped"
        if not 0 <= age <= (_START if self.state == "starting" else _FRESH):
            return f"worker {self.pid} has written nothing for {age:.0f} s: it hangs, or is gone"
        if self.error is not None:
            return f"worker {self.pid} ends: {self.error}"
        if self.state == "working" and now - self.turned > _FRESH:
            return f"the consumer thread has stood still for {now - self.turned:.0f} s"
        if self.overdue >= self.concurrency:
            return f"all {self.concurrency} slots are held by jobs over their time limit"
        return None

    def why_not_ready(self, now: float) -> str | None:
        """Why it takes no jobs now; None if it does."""
        reason = self.why_not_live(now)
        if reason is None and self.state != "working":
            reason = f"worker {self.pid} is {self.state}"
        return reason


class StatusFile:
    """Where a worker writes its status. Owner: the thread in `Worker.run`.

    Args:
        path: The file; it is replaced each time, so that a reader sees one status or the next.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._draft = f"{path}.{os.getpid()}"

    def write(self, status: Status) -> None:
        """Write it; raises `OSError`."""
        draft = Path(self._draft)
        draft.write_text(json.dumps(asdict(status)), encoding="utf-8")
        draft.replace(self._path)


def read_status(path: str) -> Status:
    """What a worker wrote last.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no status file.

    >>> import tempfile, time
    >>> path = f"{tempfile.mkdtemp()}/status"
    >>> now = time.monotonic()
    >>> status = Status(pid=7, state="connecting", written=now, turned=now, concurrency=2)
    >>> StatusFile(path).write(status)
    >>> read_status(path).why_not_live(now), read_status(path).why_not_ready(now)
    (None, 'worker 7 is connecting')
    """
    try:
        fields: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        jobs = [RunningJob(**job) for job in fields.pop("jobs")]
        return Status(**fields, jobs=jobs)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is no status file of a worker") from error
