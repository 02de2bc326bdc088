"""What a worker and its handlers log: case T1."""

import logging
from typing import Any

import pytest

from queuey_sync import Deferred, Envelope, Fatal, JobContext, JobLogFilter, Retryable, current_job
from queuey_sync.observe.escaping import LONGEST_TRACEBACK
from tests.worker.shop import Bench, Script


def test_log_levels(memory_bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """T1: deferrals log at INFO, retries and dead letters at WARNING, with the job's fields."""
    bench = memory_bench
    caplog.set_level(logging.DEBUG, "queuey_sync")
    handler = Script(Deferred("1s", "wait"), Retryable("again"), None, Fatal("no"))
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: "attempt 2: succeeded" in caplog.text)
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


NASTY = "a\nb\x1b[31m\0\u202e" + "x" * 100_000
"""What a text from outside can hold: a forged line, colours, turned text, and no end."""


def test_what_others_wrote_stays_in_its_line(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A job type, a queue and a reason from outside are escaped and cut; the fields only cut."""
    bench = memory_bench
    caplog.set_level(logging.DEBUG, "queuey_sync")
    with bench.working({bench.shop.Charge: Script(Deferred("1s", "\udcff" + NASTY))}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        _deliver(bench, NASTY)
        bench.until(lambda: 2 == len(_settled(caplog)))
    for record in _settled(caplog):
        line = record.getMessage()
        assert line.isprintable()
        assert "a\\nb\\x1b[31m\\x00\\u202e" in line
        assert line.endswith("characters)")
        assert 4_000 > len(line)
    buried = next(record for record in _settled(caplog) if record.levelno == logging.WARNING)
    assert NASTY[:255] == buried.__dict__["job_type"]


def test_a_settle_failure_stays_in_its_line(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of the error that a backend raised may hold what a message held."""
    bench = memory_bench

    def fail(*_: Any) -> None:
        raise RuntimeError(NASTY)

    with bench.working({}):
        monkeypatch.setattr("queuey_sync.backends.memory.delivery.MemoryDelivery.dead_letter", fail)
        _deliver(bench, NASTY)
        (record,) = bench.until(lambda: [r for r in caplog.records if r.levelno == logging.ERROR])
    assert record.getMessage().isprintable()
    assert 4_000 > len(record.getMessage())


@pytest.mark.parametrize("where", ["handler", "hook"])
def test_tracebacks_are_bounded(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """A traceback keeps its lines, its first and its last, and loses the middle of too many."""
    bench = memory_bench

    def fail(_: object) -> None:
        raise ValueError("\x1b[31m" + "line\n" * 100_000 + "the end")

    handler = Script(always=fail if where == "handler" else Fatal("no"))
    hook = fail if where == "hook" else None
    with bench.working({bench.shop.Charge: handler}, on_dead_letter=hook):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: any("the end" in record.getMessage() for record in caplog.records))
    text = next(text for text in map(logging.LogRecord.getMessage, caplog.records) if "end" in text)
    assert "Traceback (most recent call last):" in text.splitlines()[1]
    assert "the end" == text.splitlines()[-1]
    assert "characters left out" in text
    assert "\x1b" not in text
    assert LONGEST_TRACEBACK + 4_000 > len(text)


def _deliver(bench: Bench, job_type: str) -> None:
    bench.backend.publish(Envelope.new(job_type, bench.orders, b"{}"))


def _settled(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "queuey_sync.worker.settle"]


def test_what_was_done_is_counted_up(memory_bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A line now and then, while anything is done; none while nothing is."""
    bench = memory_bench
    caplog.set_level(logging.INFO, "queuey_sync")
    handler = Script(None, Deferred("1s"), Fatal("no"), Retryable("again"))

    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        return [one for one in found if one.startswith("in ") and "running jobs: " in one]

    def counted(text: str) -> int:
        return sum(int(line.split(text)[0].split()[-1]) for line in lines())

    with bench.working({bench.shop.Charge: handler}, concurrency=1, report_every="50ms"):
        bench.producer.enqueue_many([bench.shop.Charge("ada") for _ in range(3)])
        bench.until(lambda: counted(" dead") == 1 == counted(" retried") == counted(" deferred"))
        bench.until(lambda: counted(" succeeded") == 2)
        before = len(lines())
        bench.producer.enqueue(bench.shop.Charge("eve"))
        bench.until(lambda: len(lines()) == before + 1)
    assert counted(" succeeded") == 3
    assert "settle failures: 0" in lines()[-1]
