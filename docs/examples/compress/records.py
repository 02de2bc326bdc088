"""What happened, in a file that only grows: the workers write it, and the demo adds it up.

A line is written before its job is acknowledged, so a line can come twice but cannot be missing.
"""

import errno
import fcntl
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID


class Record:
    """The events of all runs: ``started`` for each attempt, ``done`` for each success."""

    def __init__(self, out: Path) -> None:
        self._file = out / "events.jsonl"

    def started(self, job: UUID, attempt: int) -> None:
        append(self._file, [{"event": "started", "job": str(job), "attempt": attempt}])

    def done(self, job: UUID, before: int, after: int, fingerprint: list[int]) -> None:
        event = {"event": "done", "job": str(job), "before": before, "after": after}
        append(self._file, [event | {"fingerprint": fingerprint}])


@dataclass
class Totals:
    """The events added up; reading goes on where it ended the last time."""

    file: Path
    runs: int = 0
    retries: int = 0
    before: int = 0
    after: int = 0
    done: Counter[str] = field(default_factory=Counter)
    """How often each job was done: twice if a worker was killed between its work and its ack."""
    fingerprints: list[list[int]] = field(default_factory=list)
    _position: int = 0

    @classmethod
    def of(cls, out: Path) -> "Totals":
        return cls(out / "events.jsonl")

    def read(self) -> "Totals":
        if self.file.exists():
            with self.file.open("rb") as events:
                events.seek(self._position)
                for line in events:
                    if not line.endswith(b"\n"):
                        break  # still being written
                    self._position += len(line)
                    self._add(json.loads(line))
        return self

    def _add(self, event: dict[str, Any]) -> None:
        if event["event"] == "started":
            self.runs += 1
            self.retries += event["attempt"] > 1
            return
        if event["job"] not in self.done:
            self.before += event["before"]
            self.after += event["after"]
            self.fingerprints.append(event.get("fingerprint", []))  # older demos made none
        self.done[event["job"]] += 1

    def alike(self) -> int:
        """How many files are nearly the same as another one."""
        parts = [list(enumerate(fingerprint)) for fingerprint in self.fingerprints]
        known = Counter(part for file in parts for part in file)
        return sum(any(known[part] > 1 for part in file) for file in parts)


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; none if there is no such file."""
    if not file.exists():
        return []
    return [
        json.loads(line) for line in file.read_text().splitlines(keepends=True) if line[-1] == "\n"
    ]


def append(file: Path, events: list[dict[str, Any]]) -> None:
    """Add lines: all or, on a full disk, none. Other threads and processes wait their turn."""
    lines = "".join(json.dumps(event) + "\n" for event in events).encode()
    with file.open("ab", buffering=0) as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        end = log.seek(0, os.SEEK_END)
        try:
            if log.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        except OSError:
            log.truncate(end)
            raise
