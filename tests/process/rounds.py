"""Rounds of violence: a worker process under load, an end to it at a random moment, an accounting.

A round takes everything off the broker and compares it with the marks that the runs of the jobs
left (`load.py`). The tests run a few rounds; `scripts/stress` runs hundreds.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.process.load import PREFETCH, Copy, Load, Plan, Run, WorkerProcess
from tests.support.waiting import eventually

Marks = Counter[tuple[str, Run]]


@dataclass
class Report:
    """What a round came to."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    """What did not add up."""
    log: str = ""
    """What the worker logged."""

    def __str__(self) -> str:
        """One line."""
        counts = " ".join(f"{name}={count}" for name, count in self.counts.items())
        return "; ".join([counts, *self.faults])


def stop_round(url: str, seed: int) -> Report:
    """Stop a worker under load at a random moment: every job is where its marks say, once."""
    rng = random.Random(seed)
    report = Report()
    with Load(url, mixed_plans(rng)) as load, load.worker() as worker:
        _await_random_moment(load, worker, rng)
        code, _ = worker.stop(rng.choice([signal.SIGTERM, signal.SIGINT]))
        report.log = worker.log()
        if code != 0:
            report.faults.append(f"exit code {code}")
        if worker.settle_failures() != 0:
            report.faults.append(f"settle failures {worker.settle_failures()}")
        if " ERROR " in report.log or "Traceback" in report.log:
            report.faults.append("errors in the log")
        _account_for_stop(load, report)
    return report


def kill_round(url: str, seed: int) -> Report:
    """Kill a worker at a random moment: nothing is lost, only the unacked is repeated."""
    rng = random.Random(seed)
    report = Report()
    with Load(url, mixed_plans(rng)) as load, load.worker() as worker:
        _await_random_moment(load, worker, rng)
        worker.kill()
        report.log = worker.log()
        load.await_let_go()
        _account_for_kill(load, report)
    return report


def mixed_plans(rng: random.Random, count: int = 400) -> list[Plan]:
    """A load with a bit of everything: retries, deferrals, dead letters, slow and patient jobs."""
    plans = [Plan([*_detours(rng), _end(rng)], _seconds(rng)) for _ in range(count)]
    for outcome in ("late-defer", "late-retry"):
        plans.insert(rng.randrange(count // 2), Plan([outcome, "succeed"]))
    return plans


def _detours(rng: random.Random) -> Iterator[str]:
    while rng.random() < 0.25:
        yield rng.choice(["retry", "defer"])


def _end(rng: random.Random) -> str:
    return rng.choices(["succeed", "die", "patient"], [8, 1, 1])[0]


def _seconds(rng: random.Random) -> float:
    return rng.uniform(0.1, 0.5) if rng.random() < 0.04 else rng.uniform(0, 0.02)


def _await_random_moment(load: Load, worker: WorkerProcess, rng: random.Random) -> None:
    """A moment while the worker starts, connects, works, or is about to run out of jobs."""
    worker.await_signals()
    if rng.random() < 0.2:
        time.sleep(rng.uniform(0, 0.5))
    else:
        eventually(load.marks, 30, "a job has started")
        time.sleep(rng.uniform(0, 1.5))


# After a stop: exactly one outcome for each job.


def _account_for_stop(load: Load, report: Report) -> None:
    marks = Counter(load.marks())
    after = [_after_stop(number, plan, marks, report) for number, plan in enumerate(load.plans)]
    expected = [copy for copy in after if copy is not None]
    found = load.take_until(len(expected))
    report.counts["given back"] = sum(copy.redelivered for copy in found)
    # A job that waits for its next run may be on its queue or still be held.
    wanted = Counter((copy.number, copy.turn, copy.place == "dead") for copy in expected)
    there = Counter((copy.number, copy.turn, copy.place == "dead") for copy in found)
    report.faults.extend(f"missing: {job}" for job in wanted - there)
    report.faults.extend(f"one too many: {job}" for job in there - wanted)


def _after_stop(number: int, plan: Plan, marks: Marks, report: Report) -> Copy | None:
    """Where a job has to be after its runs; None when it is done."""
    report.counts["jobs"] += 1
    for turn, outcome in enumerate(plan.outcomes):
        run = Run(number, turn)
        starts, cuts, ends = marks["start", run], marks["cut", run], marks["end", run]
        if ends > 1 or starts != ends + cuts:
            report.faults.append(f"{run}: {starts} starts, {cuts} cuts, {ends} ends")
        report.counts["cut"] += cuts
        if not ends:
            report.counts["waiting"] += 1
            return Copy(number, turn, "queue")
        report.counts[outcome] += 1
        if outcome == "die":
            return Copy(number, turn, "dead")
    return None


# After a kill: every job that is not done is there, and a run that ended is there again only if the
# broker had it unacked, which it tells by its flag on the message.


def _account_for_kill(load: Load, report: Report) -> None:
    marks = Counter(load.marks())
    done = sum(
        _is_done(plan, _ended(number, plan, marks)) for number, plan in enumerate(load.plans)
    )
    copies: dict[int, list[Copy]] = {number: [] for number in range(len(load.plans))}
    for copy in load.take_until(len(load.plans) - done):
        copies[copy.number].append(copy)
    for number, plan in enumerate(load.plans):
        _account_for_killed(number, plan, marks, copies[number], report)
    unacked = sum(copy.redelivered for each in copies.values() for copy in each)
    report.counts["unacked"] = unacked
    if unacked > PREFETCH:
        report.faults.append(f"{unacked} messages came back, more than the prefetch")


def _ended(number: int, plan: Plan, marks: Marks) -> int:
    """How many runs of a job have ended."""
    return sum(bool(marks["end", Run(number, turn)]) for turn in range(len(plan.outcomes)))


def _is_done(plan: Plan, ended: int) -> bool:
    return ended == len(plan.outcomes) and plan.outcomes[-1] != "die"


def _account_for_killed(
    number: int, plan: Plan, marks: Marks, copies: list[Copy], report: Report
) -> None:
    ended = _ended(number, plan, marks)
    report.counts["jobs"] += 1
    report.counts["ended runs"] += ended
    if any(marks["start", Run(number, turn)] > 1 for turn in range(len(plan.outcomes))):
        report.faults.append(f"job {number}: a run started twice before the kill")
    repeated = [copy for copy in copies if copy.turn == ended - 1 and copy.place == "queue"]
    report.counts["repeated"] += len(repeated)
    report.faults.extend(
        f"job {number} was acked and is there again: {copy}"
        for copy in repeated
        if not copy.redelivered
    )
    onward = [copy for copy in copies if copy not in repeated]
    is_dead = ended == len(plan.outcomes) and plan.outcomes[-1] == "die"
    allowed = {(ended - 1, "dead")} if is_dead else {(ended, "queue"), (ended, "hold")}
    if _is_done(plan, ended):
        allowed = set()
    elif not copies:
        report.faults.append(f"job {number} is lost after {ended} runs")
    if len(onward) > 1 or not {(copy.turn, copy.place) for copy in onward} <= allowed:
        report.faults.append(
            f"job {number}, after {ended} runs, is where it should not be: {copies}"
        )
