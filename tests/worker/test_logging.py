"""What a worker and its handlers log: case T1."""

import logging

import pytest

from queuey_sync import Deferred, Fatal, JobContext, JobLogFilter, Retryable, current_job
from tests.worker.shop import Bench, Script


def test_log_levels(memory_bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """T1: deferrals log at INFO, retries and dead letters at WARNING, with the job's fields."""
    bench = memory_bench
    caplog.set_level(logging.DEBUG, "queuey_sync")
    handler = Script(Deferred("1s", "wait"), Retryable("again"), None, Fatal("no"))
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 3 == len(handler.runs))
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: bench.dead(bench.orders))
    records = [r for r in caplog.records if r.name == "queuey_sync.worker.settle"]
    assert ["INFO", "WARNING", "DEBUG", "WARNING"] == [record.levelname for record in records]
    assert [1, 1, 2, 1] == [record.__dict__["attempt"] for record in records]
    for text, record in zip(["wait", "again", "succeeded", "no"], records, strict=True):
        assert text in record.getMessage()


def test_records_of_a_handler_carry_the_job(memory_bench: Bench) -> None:
    """T1: what a handler logs has the job's four fields; records outside have none."""
    bench = memory_bench
    records: list[logging.LogRecord] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    keeper, logger = Keeper(), logging.getLogger("shop.test")
    keeper.addFilter(JobLogFilter())
    logger.addHandler(keeper)
    logger.setLevel(logging.INFO)

    def handle(ctx: JobContext) -> None:
        logger.info("inside")
        assert ctx is current_job()

    with bench.working({bench.shop.Charge: Script(always=handle)}):
        logger.info("outside")
        job_id = bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 2 == len(records))
    logger.removeHandler(keeper)
    fields = ("job_id", "job_type", "queue", "attempt")
    outside, inside = records
    assert [] == [field for field in fields if hasattr(outside, field)]
    expected = [str(job_id), "shop.Charge", bench.orders, 1]
    assert expected == [inside.__dict__[field] for field in fields]
    assert [] == bench.dead(bench.orders)
    assert current_job() is None
