"""A real worker process that is killed: no job is lost, and only what was unacked runs again."""

import random
import time

import pytest

from tests.process.load import PREFETCH, Copy, Load, Plan, Run
from tests.process.rounds import kill_round, mixed_plans
from tests.support.broker import Broker
from tests.support.waiting import eventually


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_under_load_at_a_random_moment(amqp_url: str, seed: int) -> None:
    """Every job that is not done is on the broker; what ended is there again only if unacked."""
    report = kill_round(amqp_url, seed)
    assert [] == report.faults, report.log


def test_a_slow_job_holds_back_no_ack(broker: Broker) -> None:
    """A kill with 1,000 short jobs done behind a long one repeats the long one alone."""
    plans = [Plan(["succeed"], 60), *[Plan(["succeed"])] * 1_000]
    with Load(broker.url, plans) as load, load.worker(concurrency=4) as worker:
        eventually(lambda: len(load.marked("end")) == 1_000, 20)

        def unacked() -> int:
            state = broker.api(f"queues/%2F/{load.queue}")
            assert state.get("messages") == 1, state
            return int(state["messages_unacknowledged"])

        eventually(lambda: unacked() == 1, message="all but the long job are acked")
        worker.kill()
        load.await_let_go()
        assert [Copy(0, 0, "queue", redelivered=True)] == load.take_all()


def test_work_goes_on_after_each_kill(amqp_url: str) -> None:
    """Killed over and over, the work is done in the end, each run at least once and few twice."""
    rng = random.Random(7)
    plans = [plan for plan in mixed_plans(rng, 300) if "late" not in plan.outcomes[0]]
    kills = 3
    with Load(amqp_url, plans) as load:
        for _ in range(kills):
            with load.worker() as worker:
                _await_progress(load)
                time.sleep(rng.uniform(0, 0.3))
                worker.kill()
        every = {
            Run(number, turn) for number, plan in enumerate(plans) for turn in range(len(plan[0]))
        }
        with load.worker() as worker:
            eventually(lambda: set(load.marked("end")) == every, 60)
            assert 0 == worker.stop()[0]
            assert 0 == worker.settle_failures()
        starts = load.marked("start")
        assert len(starts) - len(every) <= kills * PREFETCH
        dead = {copy.number for copy in load.take_all() if copy.place == "dead"}
        assert {number for number, plan in enumerate(plans) if plan.outcomes[-1] == "die"} == dead


def _await_progress(load: Load) -> None:
    known = len(load.marks())
    eventually(lambda: len(load.marks()) > known, 30, "a job has started")
