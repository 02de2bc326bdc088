"""What becomes of jobs when a real worker runs them: cases F, G, K and L, in both pools."""

from functools import partial
from typing import Any

import pytest

from queuey_sync import (
    DeadLetter,
    DeadLetterCause,
    Deferred,
    Envelope,
    Fatal,
    JobError,
    Retryable,
    RetryPolicy,
)
from tests.worker.script import (
    Exiting,
    HalfPicklable,
    Picky,
    Unpicklable,
    Unprintable,
    fail,
    fail_at_length,
    give,
)
from tests.worker.shop import Bench, Script

broker_too = pytest.mark.parametrize(
    "every_bench",
    ["memory-thread", "rabbitmq-thread", "memory-process", "rabbitmq-process"],
    indirect=True,
)
"""For a test that runs in every place there is; the others spare a broker the processes."""


@broker_too
def test_success_is_acked_and_the_context_is_right(every_bench: Bench) -> None:
    """F1: a handler that returns settles its job, having seen a true context."""
    bench = every_bench
    handler = Script()
    with bench.working({bench.shop.Charge: handler}) as worker:
        job_id = bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: handler.runs)
    [ctx] = handler.runs
    assert [bench.shop.Charge("ada")] == handler.jobs
    assert (job_id, "shop.Charge", bench.orders) == (ctx.job_id, ctx.job_type, ctx.queue)
    assert (1, 3, False, 0, 0) == (
        ctx.attempt,
        ctx.max_attempts,
        ctx.is_last_attempt,
        ctx.deferrals,
        ctx.priority,
    )
    assert bench.settled(bench.orders) in ([(1, "succeeded")], None)
    assert 0 == bench.adapter.ready(bench.orders)
    assert [] == bench.dead(bench.orders)
    assert 0 == worker.handle().settle_failures()


def test_retryable_runs_again_as_the_next_attempt(every_bench: Bench) -> None:
    """F2: one retryable failure costs one attempt and at least the policy's delay."""
    bench = every_bench
    handler = Script(Retryable("flaky"))
    before = bench.adapter.now()
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 2 == len(handler.runs))
        assert bench.adapter.now() - before >= 1
    assert [1, 2] == [ctx.attempt for ctx in handler.runs]
    assert 1 == len({ctx.job_id for ctx in handler.runs})
    assert bench.settled(bench.orders) in ([(1, "retried"), (2, "succeeded")], None)
    assert 0 == bench.adapter.ready(bench.orders)


@broker_too
def test_exhausted_attempts_end_in_the_dead_letter_queue(every_bench: Bench) -> None:
    """F3: after the last attempt the job is dead, with the count and the error in the reason."""
    bench = every_bench
    handler = Script(always=Retryable("always down"))
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 3 == len(handler.runs))
    assert [True] == [ctx.is_last_attempt for ctx in handler.runs[2:]]
    assert bench.settled(bench.orders) in ([(1, "retried"), (2, "retried")], None)
    reason = "max attempts (3) exhausted after attempt 3: always down"
    assert [(3, reason)] == bench.dead(bench.orders)


def test_fatal_is_never_tried_again(every_bench: Bench) -> None:
    """F4: a fatal error goes to the dead-letter queue at once."""
    bench = every_bench
    handler = Script(always=Fatal("bad input"))
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: handler.runs)
    assert 1 == len(handler.runs)
    assert bench.settled(bench.orders) in ([], None)
    assert [(1, "fatal error: bad input")] == bench.dead(bench.orders)


def test_a_job_without_handler_is_dead_lettered(every_bench: Bench) -> None:
    """F5: an unknown job type is kept with its reason, and the worker goes on."""
    bench = every_bench
    handler = Script()
    with bench.working({bench.shop.Charge: handler}, concurrency=1):
        bench.producer.enqueue(bench.shop.Stray(1))
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: handler.runs)
    assert [(1, "no handler for job type `shop.Stray`")] == bench.dead(bench.orders)


def test_a_payload_that_does_not_decode_is_dead_lettered_verbatim(every_bench: Bench) -> None:
    """F6: a wrong payload never reaches the handler, and the delivered bytes are kept."""
    bench = every_bench
    handler = Script()
    wrong = Envelope.new("shop.Charge", bench.orders, b'{ "not_a_customer" : 42 }')
    with bench.working({bench.shop.Charge: handler}, concurrency=1):
        bench.backend.publish(wrong)
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: handler.runs)
    [(body, reason)] = bench.adapter.dead(bench.orders)
    assert wrong.encode() == body
    assert reason.startswith("decode error: serialization error: ")
    assert 1 == len(handler.runs)


def test_any_other_exception_is_a_failed_attempt(every_bench: Bench) -> None:
    """F7: what a handler did not choose to raise is tried again, and the worker lives."""
    bench = every_bench
    handler = Script(ValueError("boom"))
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 2 == len(handler.runs))
    assert bench.settled(bench.orders) in ([(1, "retried"), (2, "succeeded")], None)
    assert [] == bench.dead(bench.orders)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (ValueError("boom"), "ValueError: boom"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (Unprintable(), "Unprintable (its text cannot be made: RuntimeError)"),
        (Exiting(), "Exiting (its text cannot be made: SystemExit)"),
        (partial(fail, Unpicklable, "stuck"), "Unpicklable: stuck"),
        (partial(fail, HalfPicklable, "one", "other"), "HalfPicklable: one and other"),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_whatever_was_raised_is_in_the_reason(every_bench: Bench, step: Any, reason: str) -> None:
    """F7: also what ends programs, has no text, or cannot be sent: type and text, in any pool."""
    bench = every_bench
    handler = Script(step)
    with bench.working({bench.shop.Notify: handler}, concurrency=1):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.producer.enqueue(bench.shop.Notify(2))
        bench.until(lambda: 2 == len(handler.runs))
    expected = f"max attempts (1) exhausted after attempt 1: handler panicked: {reason}"
    assert [(1, expected)] == bench.dead(bench.mail)


def test_ten_megabytes_of_error_are_a_failed_attempt(pool_bench: Bench) -> None:
    """An error whose text is huge is an ordinary failed job, and its text is the reason."""
    bench = pool_bench
    with bench.working({bench.shop.Notify: Script(fail_at_length)}):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.dead(bench.mail))
    [(attempt, reason)] = bench.dead(bench.mail)
    assert 1 == attempt
    start = "max attempts (1) exhausted after attempt 1: handler panicked: ValueError: long long "
    assert reason.startswith(start)
    assert 10_000_000 < len(reason)


@pytest.mark.parametrize("returned", [True, False], ids=["returned", "raised"])
@pytest.mark.parametrize(
    ("error", "settled", "dead"),
    [
        (Retryable("x"), [], [(1, "max attempts (1) exhausted after attempt 1: x")]),
        (JobError("x"), [], [(1, "max attempts (1) exhausted after attempt 1: JobError: x")]),
        (Fatal("x"), [], [(1, "fatal error: x")]),
        (Deferred("1s"), [(1, "deferred"), (1, "succeeded")], []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_returned_job_error_counts_as_raised(
    pool_bench: Bench, error: JobError, returned: bool, settled: list[Any], dead: list[Any]
) -> None:
    """Returning a job error has the outcome of raising it."""
    bench = pool_bench
    handler = Script(partial(give, error) if returned else error)
    with bench.working({bench.shop.Notify: handler}):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: (settled, dead) == (bench.settled(bench.mail), bench.dead(bench.mail)))


@broker_too
@pytest.mark.parametrize(("job", "level"), [("Charge", 10), ("Trace", 0)])
def test_a_deferral_costs_no_attempt_and_comes_back_first(
    every_bench: Bench, job: str, level: int
) -> None:
    """G1: a deferred job is the same attempt, at the top level of its queue."""
    bench = every_bench
    handler = Script(Deferred("1s", "later"))
    kind = getattr(bench.shop, job)
    with bench.working({kind: handler}) as worker:
        bench.producer.enqueue(kind("ada" if job == "Charge" else 1))
        bench.until(lambda: 2 == len(handler.runs))
    first, second = handler.runs
    assert first.job_id == second.job_id
    assert (1, 1, level) == (second.attempt, second.deferrals, second.priority)
    assert bench.settled(first.queue) in ([(1, "deferred"), (1, "succeeded")], None)
    assert [] == bench.dead(first.queue)
    assert 0 == bench.adapter.held(first.queue)
    assert 0 == worker.handle().settle_failures()


def test_deferrals_are_unlimited(every_bench: Bench) -> None:
    """G2: a job with a single attempt may be deferred again and again."""
    bench = every_bench
    handler = Script(Deferred("1s"), Deferred("1s"), Deferred("1s"))
    with bench.working({bench.shop.Notify: handler}):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: 4 == len(handler.runs))
    assert [(1, 0), (1, 1), (1, 2), (1, 3)] == [(c.attempt, c.deferrals) for c in handler.runs]
    assert [] == bench.dead(bench.mail)


def test_a_deferred_job_runs_before_what_waits(pool_bench: Bench) -> None:
    """G3: a hold that ends puts its job ahead of ordinary work, also for a new worker."""
    bench = pool_bench
    handler = Script(Deferred("30s"))
    options: dict[str, Any] = {"concurrency": 1, "queues": [bench.shop.Queues.ORDERS]}
    bench.producer.enqueue(bench.shop.Charge("late"))
    with bench.working({bench.shop.Charge: handler}, **options):
        bench.until(lambda: handler.runs)
    bench.producer.enqueue(bench.shop.Charge("b1"))
    bench.producer.enqueue(bench.shop.Charge("b2"))
    assert 2 == bench.adapter.ready(bench.orders)
    bench.pass_time(30)
    assert 3 == bench.adapter.ready(bench.orders)
    with bench.working({bench.shop.Charge: handler}, **options):
        bench.until(lambda: 4 == len(handler.runs))
    assert ["late", "late", "b1", "b2"] == [job.customer for job in handler.jobs]


def test_a_retry_after_a_deferral_drops_the_priority(every_bench: Bench) -> None:
    """G4: the next attempt is ordinary work again and remembers its deferrals."""
    bench = every_bench
    handler = Script(Deferred("1s"), Retryable("x"))
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 3 == len(handler.runs))
    assert [(1, 0, 0), (1, 1, 10), (2, 1, 0)] == [
        (ctx.attempt, ctx.deferrals, ctx.priority) for ctx in handler.runs
    ]


def test_overrides_come_before_declared_policies(pool_bench: Bench) -> None:
    """K1: a queue's override replaces the declared policies, a job's override comes before it."""
    bench = pool_bench
    queue_override = {bench.shop.Queues.ORDERS: RetryPolicy.none()}
    job_override = {bench.shop.Charge: RetryPolicy.fixed(2, "1s")}
    for options, expected in [
        ({"retry_overrides": queue_override}, 1),
        ({"retry_overrides": queue_override, "job_retry_overrides": job_override}, 2),
    ]:
        handler = Script(always=Retryable("x"))
        dead = len(bench.dead(bench.orders))
        with bench.working({bench.shop.Charge: handler}, **options) as worker:
            bench.producer.enqueue(bench.shop.Charge("ada"))
            bench.until(lambda before=dead: before < len(bench.dead(bench.orders)))
        assert [expected] * expected == [ctx.max_attempts for ctx in handler.runs]
        policy = worker.retry_policy_for("shop.Charge")
        assert policy is not None
        assert expected == policy.max_attempts
        assert worker.retry_policy_for("shop.Nobody") is None


@pytest.mark.parametrize(
    ("customer", "overridden", "expected"), [("ada", True, 5), ("grace", False, 3)]
)
def test_the_payloads_own_policy_comes_first(
    pool_bench: Bench, customer: str, overridden: bool, expected: int
) -> None:
    """K2: what `retry_policy(job)` returns judges that job, and the context says so."""
    bench = pool_bench
    handler = Picky(RetryPolicy.fixed(5, "1s"))
    options = {}
    if overridden:
        options = {
            "retry_overrides": {bench.shop.Queues.ORDERS: RetryPolicy.none()},
            "job_retry_overrides": {bench.shop.Charge: RetryPolicy.fixed(2, "1s")},
        }
    with bench.working({bench.shop.Charge: handler}, **options):
        bench.producer.enqueue(bench.shop.Charge(customer))
        bench.until(lambda: bench.dead(bench.orders))
    assert [expected] * expected == [ctx.max_attempts for ctx in handler.runs]


def test_a_policy_that_is_none_is_a_failed_attempt(pool_bench: Bench) -> None:
    """A `retry_policy` that returns nonsense costs attempts of its job, as the set policy says."""
    bench = pool_bench
    with bench.working({bench.shop.Charge: Picky("often")}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: bench.dead(bench.orders))
    [(attempt, reason)] = bench.dead(bench.orders)
    assert 3 == attempt
    assert "handler panicked: TypeError: retry_policy() returned 'often'" in reason


def test_the_hook_hears_of_every_dead_letter(every_bench: Bench) -> None:
    """L1: cause, attempts, limit and reason are those of the dead letter."""
    bench = every_bench
    heard: list[DeadLetter] = []
    down, fatal = Script(always=Retryable("always down")), Script(always=Fatal("bad input"))
    with bench.working(
        {bench.shop.Charge: down, bench.shop.Notify: fatal}, on_dead_letter=heard.append
    ):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.producer.enqueue(bench.shop.Stray(1))
        bench.backend.publish(Envelope.new("shop.Charge", bench.orders, b"{}"))
        bench.until(lambda: 4 == len(heard))
    by_cause = {dead.cause: dead for dead in heard}
    assert {
        DeadLetterCause.EXHAUSTED: (3, 3, True),
        DeadLetterCause.FATAL: (1, 1, True),
        DeadLetterCause.NO_HANDLER: (1, None, False),
        DeadLetterCause.DECODE: (1, 3, False),
    } == {
        cause: (dead.attempts, dead.max_attempts, dead.reached_handler)
        for cause, dead in by_cause.items()
    }
    reasons = [reason for _, reason in bench.dead(bench.orders) + bench.dead(bench.mail)]
    assert sorted(reasons) == sorted(dead.reason for dead in heard)


def test_the_hook_comes_before_the_dead_letter(pool_bench: Bench) -> None:
    """L2: while the hook runs the job is not dead yet; a hook that fails changes nothing."""
    bench = pool_bench
    seen: list[int] = []

    def hook(_: DeadLetter) -> None:
        seen.append(len(bench.dead(bench.mail)))
        raise SystemExit("the hook fails")

    with bench.working(
        {bench.shop.Notify: Script(always=Fatal("x"))}, on_dead_letter=hook
    ) as worker:
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: bench.dead(bench.mail))
    assert [0] == seen
    assert 0 == worker.handle().settle_failures()


def test_the_hook_is_silent_otherwise_and_correlation_ids_stay(every_bench: Bench) -> None:
    """L4: no hook for success, retry and deferral; the correlation id is in every attempt."""
    bench = every_bench
    heard: list[DeadLetter] = []
    handler = Script(Retryable("x"), Deferred("1s"), None, Fatal("end"))
    with bench.working({bench.shop.Charge: handler}, on_dead_letter=heard.append):
        bench.producer.enqueue(bench.shop.Charge("ada"), correlation_id="t-9")
        bench.until(lambda: 3 == len(handler.runs))
        assert [] == heard
        bench.producer.enqueue(bench.shop.Charge("ada"), correlation_id="t-9")
        bench.until(lambda: heard)
    assert ["t-9"] * 4 == [ctx.correlation_id for ctx in handler.runs]
    assert ["t-9"] == [dead.envelope.correlation_id for dead in heard]
