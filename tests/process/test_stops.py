"""A real worker process that is asked to stop: what it took is finished and settled, once."""

import signal
import time

import pytest

from tests.process.load import Copy, Load, Plan, Run, one_each
from tests.process.rounds import stop_round
from tests.support.waiting import eventually


@pytest.mark.parametrize("seed", range(5))
def test_a_stop_under_load_at_a_random_moment(amqp_url: str, seed: int) -> None:
    """Each job is settled exactly as its marks say, and what nobody took is back, once."""
    report = stop_round(amqp_url, seed)
    assert [] == report.faults, report.log


@pytest.mark.parametrize("early", [0.005, -0.005, 0.0])
def test_acks_of_jobs_that_end_with_the_stop(amqp_url: str, early: float) -> None:
    """Report 1: jobs that end at the moment of the stop are acked before it reports success."""
    plans = one_each("succeed", "succeed", "succeed", seconds=0.3)
    with Load(amqp_url, plans) as load, load.worker(concurrency=3) as worker:
        eventually(lambda: len(load.marked("start")) == 3)
        time.sleep(0.3 - early)
        assert 0 == worker.stop()[0]
        assert 3 == len(load.marked("end"))
        assert [] == load.take_all()
        assert 0 == worker.settle_failures()


def test_retries_of_jobs_that_end_with_the_stop(amqp_url: str) -> None:
    """Report 1: a retry decided at that moment leaves one copy in the hold queue and none on q."""
    plans = one_each("retry", "late-retry", seconds=0.3)
    with Load(amqp_url, plans, delay="60s") as load, load.worker() as worker:
        eventually(lambda: len(load.marked("start")) == 2)
        time.sleep(0.3)
        assert 0 == worker.stop()[0]
        assert {Copy(0, 1, "hold"), Copy(1, 1, "hold")} == set(load.take_all())
        assert 0 == worker.settle_failures()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_either_signal_lets_the_running_job_finish(amqp_url: str, signum: signal.Signals) -> None:
    """Report 10: the job in flight ends and is acked, the process exits 0; the next job waits."""
    plans = one_each("succeed", "succeed", seconds=0.8)
    with Load(amqp_url, plans) as load, load.worker(concurrency=1) as worker:
        eventually(load.marks)
        assert 0 == worker.stop(signum)[0]
        assert [("start", Run(0, 0)), ("end", Run(0, 0))] == load.marks()
        assert [Copy(1, 0, "queue", redelivered=True)] == load.take_all()


@pytest.mark.parametrize("after", [0.0, 0.05, 0.2])
def test_a_stop_while_the_worker_starts(amqp_url: str, after: float) -> None:
    """Report 10: from the moment that there are handlers on, a signal is a graceful stop."""
    with Load(amqp_url, one_each("succeed")) as load, load.worker() as worker:
        worker.await_signals()
        time.sleep(after)
        code, seconds = worker.stop()
        assert 0 == code
        assert seconds < 2
        assert 1 == len(load.marked("end")) + len(load.take_all())


def test_a_patient_handler_is_cut_by_a_stop(amqp_url: str) -> None:
    """Report 13: tenacity that waits in a handler gives the job back, at no attempt's cost."""
    with Load(amqp_url, one_each("patient", seconds=600)) as load, load.worker() as worker:
        eventually(load.marks)
        code, seconds = worker.stop()
        assert 0 == code
        assert seconds < 1
        assert [("start", Run(0, 0)), ("cut", Run(0, 0))] == load.marks()
        assert [Copy(0, 0, "queue", redelivered=True)] == load.take_all()
        assert 0 == worker.settle_failures()


def test_outcomes_that_are_decided_after_the_stop(amqp_url: str) -> None:
    """Report 13: deferrals and retries of handlers that saw the stop are placed and confirmed."""
    plans = [*one_each("late-defer", "late-retry"), Plan(["die"], 0.5)]
    with Load(amqp_url, plans, delay="60s") as load, load.worker() as worker:
        eventually(lambda: len(load.marked("start")) == 3)
        assert 0 == worker.stop()[0]
        expected = {Copy(0, 1, "hold"), Copy(1, 1, "hold"), Copy(2, 0, "dead")}
        assert expected == set(load.take_all())
        assert 0 == worker.settle_failures()
        assert "cannot schedule new futures" not in worker.log()
        assert "Traceback" not in worker.log()
