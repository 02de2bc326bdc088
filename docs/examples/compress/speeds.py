"""How fast each pool was: kept in the output folder, so that two runs can be compared."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Speed:
    """A run that did all of its jobs."""

    files: int
    size: int
    seconds: float
    """From the first job on that was begun to the last one that was done."""

    def rate(self) -> float:
        return self.files / self.seconds

    def __str__(self) -> str:
        return f"{self.rate():.0f} files/s, {self.size / 1_000_000 / self.seconds:.1f} MB/s"


class Speeds:
    """The last such run with each pool."""

    def __init__(self, out: Path) -> None:
        self._file = out / "speeds.json"
        self._speeds: dict[str, Speed] = {}
        if self._file.exists():
            speeds = json.loads(self._file.read_text())
            self._speeds = {pool: Speed(**speed) for pool, speed in speeds.items()}

    def keep(self, pool: str, speed: Speed) -> None:
        self._speeds[pool] = speed
        text = json.dumps({pool: asdict(speed) for pool, speed in self._speeds.items()})
        self._file.write_text(text + "\n")

    def compared(self, pool: str) -> str:
        """How fast this pool was, and how much faster than the other one with the same files."""
        other = "thread" if pool == "process" else "process"
        speed, others = self._speeds.get(pool), self._speeds.get(other)
        if speed is None:
            return "unknown: more than one run did the work"
        if others is None or (others.files, others.size) != (speed.files, speed.size):
            return f"{speed}; --fresh --pool {other} shows the difference"
        ratio = speed.rate() / others.rate()
        return f"{speed}, which is {ratio:.2f} x that of --pool {other} ({others})"
