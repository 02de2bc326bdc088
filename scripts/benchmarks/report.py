"""From numbers to a report: medians over the rounds, ratios within each round, tables. Pure.

Ratios are taken between two subjects of one round, which met the machine in one mood, and
the median of those is shown; a ratio of two medians would compare moods.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

Numbers = dict[str, float]
"""What one measurement gave, by metric."""
Rounds = Sequence[Mapping[str, Numbers]]
"""What each round gave, by subject."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the extremes around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of these values."""
        return cls(statistics.median(values), min(values), max(values))

    def show(self, form: str) -> str:
        """The median, and the extremes in brackets."""
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"


@dataclass(frozen=True, slots=True)
class Promise:
    """What this project promises, and what was measured."""

    text: str
    measured: Spread
    _: KW_ONLY
    at_least: float = -math.inf
    at_most: float = math.inf

    @property
    def kept(self) -> bool:
        """Whether the median is within the bound."""
        return self.at_least <= self.measured.median <= self.at_most

    def show(self) -> str:
        """One line about it."""
        least = math.isfinite(self.at_least)
        bound = f">= {self.at_least:g}" if least else f"<= {self.at_most:g}"
        verdict = "" if self.kept else "   NOT on this machine"
        return f"{self.text:<58} {bound:>7}   {self.measured.show('.2f')}{verdict}"


def ratio(rounds: Rounds, metric: str, above: str, below: str) -> Spread:
    """One subject's metric divided by another's, within each round."""
    return Spread.of([numbers[above][metric] / numbers[below][metric] for numbers in rounds])


def table(rounds: Rounds, reference: str) -> str:
    """Every subject's throughput and CPU, and its throughput compared with the reference's.

    The CPU of workers with child processes is not measured.
    """
    lines = [f"{'':<26}{'jobs/s':>26}{'CPU us/job':>24}   x {reference}"]
    for name, first in rounds[0].items():
        rate = Spread.of([numbers[name]["jobs_per_second"] for numbers in rounds])
        cpu = "-"
        if "cpu_us_per_job" in first:
            cpu = Spread.of([numbers[name]["cpu_us_per_job"] for numbers in rounds]).show(".0f")
        times = ratio(rounds, "jobs_per_second", name, reference)
        lines.append(f"{name:<26}{rate.show(',.0f'):>26}{cpu:>24}   {times.median:.2f}")
    return "\n".join(lines)


def latency(latencies_ms: Sequence[float]) -> Numbers:
    """The median and the 99th percentile."""
    return {
        "p50_ms": statistics.median(latencies_ms),
        "p99_ms": statistics.quantiles(latencies_ms, n=100)[98],
    }


def idle_table(idle: Mapping[str, Numbers]) -> str:
    """Every subject's latency and its CPU at rest."""
    lines = [f"{'':<26}{'p50 ms':>10}{'p99 ms':>10}{'idle CPU %':>14}"]
    for name, numbers in idle.items():
        median, high = numbers["p50_ms"], numbers["p99_ms"]
        lines.append(f"{name:<26}{median:>10.2f}{high:>10.2f}{numbers['idle_cpu_percent']:>14.2f}")
    return "\n".join(lines)
