"""Rounds of network faults: a worker that reconnects, a proxy that breaks things, an accounting.

The tests run a few short rounds; `scripts/chaos` runs long ones.
"""

import random
import time
from collections import Counter

from tests.process.load import PREFETCH, Load, Plan, Run
from tests.process.rounds import Report, mixed_plans
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

_HEARTBEAT = 2
_SILENCE = 3.0 * _HEARTBEAT
"""Seconds after which both sides have given a silent connection up."""


def fault_round(url: str, seed: int, jobs: int = 200, faults: int = 6) -> Report:
    """Break the worker's connections at random moments: every job ends as planned, or is repeated.

    Args:
        url: The broker; jobs are published, and counted, without the proxy.
        seed: Of the jobs and the faults.
        jobs: How many jobs there are, about.
        faults: How often something breaks.
    """
    rng = random.Random(seed)
    report = Report()
    plans = [plan for plan in mixed_plans(rng, jobs) if "late" not in plan.outcomes[0]]
    every = {Run(number, turn) for number, plan in enumerate(plans) for turn in range(len(plan[0]))}
    with Proxy(url) as proxy, Load(url, plans) as load:
        through = f"{proxy.url}?heartbeat={_HEARTBEAT}"
        with load.worker(options=("--reconnect",), url=through) as worker:
            eventually(load.marks, 30, "a job has started")
            for _ in range(faults):
                time.sleep(rng.uniform(0, 0.5))
                report.counts[_break(proxy, rng)] += 1
            limit = 60 + jobs / 10
            eventually(lambda: every <= set(load.marked("end")), limit, "every run has ended")
            code, _ = worker.stop()
            report.log = worker.log()
            report.counts["settle failures"] = worker.settle_failures()
            if code != 0:
                report.faults.append(f"exit code {code}")
        load.await_let_go()
        _account(load, plans, every, report, faults)
    return report


def _break(proxy: Proxy, rng: random.Random) -> str:
    """Do it, and return what it was."""
    kind = rng.choices(["cut", "refused", "slow", "frozen", "silent"], [6, 2, 2, 1, 1])[0]
    match kind:
        case "refused":
            proxy.refuse()
            time.sleep(rng.uniform(0, 1))
            proxy.accept()
        case "slow":  # so that a cut comes between a publish and its confirm, or an ack and its end
            proxy.delay = rng.uniform(0, 0.3)
            time.sleep(rng.uniform(0, 1))
            proxy.cut()
            proxy.delay = 0
        case "frozen":
            proxy.freeze()
            time.sleep(rng.uniform(0, _SILENCE))
            proxy.thaw()
        case "silent":
            proxy.drops_requests = proxy.drops_replies = True
            time.sleep(_SILENCE)
            proxy.drops_requests = proxy.drops_replies = False
            proxy.cut()
        case _:
            proxy.cut()
    return kind


def _account(load: Load, plans: list[Plan], every: set[Run], report: Report, faults: int) -> None:
    ends = Counter(load.marked("end"))
    report.counts["jobs"], report.counts["runs"] = len(plans), ends.total()
    repeated = ends.total() - len(every)
    report.counts["repeated"] = repeated
    # What failed to settle is counted. AMQP confirms no ack, so one that was written is not.
    if repeated > report.counts["settle failures"] + faults * PREFETCH:
        report.faults.append(f"{repeated} runs were repeated, more than were in hand")
    report.faults.extend(f"unplanned: {run}" for run in set(ends) - every)
    dead: set[int] = set()
    for copy in load.take_all():
        if copy.place == "dead":
            dead.add(copy.number)
        elif not ends[Run(copy.number, copy.turn)]:
            report.faults.append(f"left, and it has not run: {copy}")
        report.counts[f"left: {copy.place}"] += 1
    planned = {number for number, plan in enumerate(plans) if plan.outcomes[-1] == "die"}
    if dead != planned:
        report.faults.append(f"dead are {sorted(dead)}, and {sorted(planned)} were planned")
