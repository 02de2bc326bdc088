"""What becomes of jobs when a real worker runs them: cases F, G, K and L, on every backend."""

from typing import Any

import pytest

from queuey_sync import (
    DeadLetter,
    DeadLetterCause,
    Deferred,
    Envelope,
    Fatal,
    JobContext,
    JobError,
    Retryable,
    RetryPolicy,
)
from tests.worker.shop import Bench, Script


def test_success_is_acked_and_the_context_is_right(bench: Bench) -> None:
    """F1: a handler that returns settles its job, having seen a true context."""
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


def test_retryable_runs_again_as_the_next_attempt(bench: Bench) -> None:
    """F2: one retryable failure costs one attempt and at least the policy's delay."""
    times: list[float] = []

    def handle(ctx: JobContext) -> object:
        times.append(bench.adapter.now())
        return Retryable("flaky") if ctx.attempt == 1 else None

    handler = Script(always=handle)
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 2 == len(times))
    assert times[1] - times[0] >= 0.98
    assert [1, 2] == [ctx.attempt for ctx in handler.runs]
    assert 1 == len({ctx.job_id for ctx in handler.runs})
    assert bench.settled(bench.orders) in ([(1, "retried"), (2, "succeeded")], None)
    assert 0 == bench.adapter.ready(bench.orders)


def test_exhausted_attempts_end_in_the_dead_letter_queue(bench: Bench) -> None:
    """F3: after the last attempt the job is dead, with the count and the error in the reason."""
    handler = Script(always=Retryable("always down"))
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 3 == len(handler.runs))
    assert [True] == [ctx.is_last_attempt for ctx in handler.runs[2:]]
    assert bench.settled(bench.orders) in ([(1, "retried"), (2, "retried")], None)
    reason = "max attempts (3) exhausted after attempt 3: always down"
    assert [(3, reason)] == bench.dead(bench.orders)


def test_fatal_is_never_tried_again(bench: Bench) -> None:
    """F4: a fatal error goes to the dead-letter queue at once."""
    handler = Script(always=Fatal("bad input"))
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: handler.runs)
    assert 1 == len(handler.runs)
    assert bench.settled(bench.orders) in ([], None)
    assert [(1, "fatal error: bad input")] == bench.dead(bench.orders)


def test_a_job_without_handler_is_dead_lettered(bench: Bench) -> None:
    """F5: an unknown job type is kept with its reason, and the worker goes on."""
    handler = Script()
    with bench.working({bench.shop.Charge: handler}, concurrency=1):
        bench.producer.enqueue(bench.shop.Stray(1))
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: handler.runs)
    assert [(1, "no handler for job type `shop.Stray`")] == bench.dead(bench.orders)


def test_a_payload_that_does_not_decode_is_dead_lettered_verbatim(bench: Bench) -> None:
    """F6: a wrong payload never reaches the handler, and the delivered bytes are kept."""
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


def _raise(error: BaseException) -> Any:
    def step(_: JobContext) -> None:
        raise error

    return step


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class _Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(7)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (_Exiting(), "handler panicked: _Exiting (its text cannot be made: SystemExit)"),
        (ValueError("boom"), "handler panicked: ValueError: boom"),
        (SystemExit(3), "handler panicked: SystemExit: 3"),
        (KeyboardInterrupt(), "handler panicked: KeyboardInterrupt"),
        (GeneratorExit(), "handler panicked: GeneratorExit"),
        (_Unprintable(), "handler panicked: _Unprintable (its text cannot be made: RuntimeError)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_other_exception_is_a_failed_attempt(
    bench: Bench, error: BaseException, reason: str
) -> None:
    """F7: whatever a handler raises costs one attempt of its job, and the worker lives."""
    once, single = Script(_raise(error)), Script(_raise(error))
    with bench.working({bench.shop.Charge: once, bench.shop.Notify: single}):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 2 == len(once.runs))
    assert bench.settled(bench.orders) in ([(1, "retried"), (2, "succeeded")], None)
    assert [(1, f"max attempts (1) exhausted after attempt 1: {reason}")] == bench.dead(bench.mail)


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
    memory_bench: Bench, error: JobError, returned: bool, settled: list[Any], dead: list[Any]
) -> None:
    """Returning a job error has the outcome of raising it."""
    bench = memory_bench
    handler = Script((lambda _: error) if returned else error)
    with bench.working({bench.shop.Notify: handler}):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: (settled, dead) == (bench.settled(bench.mail), bench.dead(bench.mail)))


@pytest.mark.parametrize(("job", "level"), [("Charge", 10), ("Trace", 0)])
def test_a_deferral_costs_no_attempt_and_comes_back_first(
    bench: Bench, job: str, level: int
) -> None:
    """G1: a deferred job is the same attempt, at the top level of its queue."""
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


def test_deferrals_are_unlimited(bench: Bench) -> None:
    """G2: a job with a single attempt may be deferred again and again."""
    handler = Script(Deferred("1s"), Deferred("1s"), Deferred("1s"))
    with bench.working({bench.shop.Notify: handler}):
        bench.producer.enqueue(bench.shop.Notify(1))
        bench.until(lambda: 4 == len(handler.runs))
    assert [(1, 0), (1, 1), (1, 2), (1, 3)] == [(c.attempt, c.deferrals) for c in handler.runs]
    assert [] == bench.dead(bench.mail)


def test_a_deferred_job_runs_before_what_waits(memory_bench: Bench) -> None:
    """G3: a hold that ends puts its job ahead of ordinary work, also for a new worker."""
    bench = memory_bench
    order: list[str] = []
    late = Deferred("30s")

    def handle(job: Any, ctx: JobContext) -> None:
        order.append(job.customer)
        if job.customer == "late" and ctx.deferrals == 0:
            raise late

    options: dict[str, Any] = {"concurrency": 1, "queues": [bench.shop.Queues.ORDERS]}
    bench.producer.enqueue(bench.shop.Charge("late"))
    with bench.working({bench.shop.Charge: handle}, **options):
        bench.until(lambda: order)
    bench.producer.enqueue(bench.shop.Charge("b1"))
    bench.producer.enqueue(bench.shop.Charge("b2"))
    bench.until(lambda: 3 == bench.adapter.ready(bench.orders))
    with bench.working({bench.shop.Charge: handle}, **options):
        bench.until(lambda: 4 == len(order))
    assert ["late", "late", "b1", "b2"] == order


def test_a_retry_after_a_deferral_drops_the_priority(bench: Bench) -> None:
    """G4: the next attempt is ordinary work again and remembers its deferrals."""
    handler = Script(Deferred("1s"), Retryable("x"))
    with bench.working({bench.shop.Charge: handler}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: 3 == len(handler.runs))
    assert [(1, 0, 0), (1, 1, 10), (2, 1, 0)] == [
        (ctx.attempt, ctx.deferrals, ctx.priority) for ctx in handler.runs
    ]


def test_overrides_come_before_declared_policies(memory_bench: Bench) -> None:
    """K1: a queue's override replaces the declared policies, a job's override comes before it."""
    bench = memory_bench
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


class _Picky(Script):
    """Has a policy of its own for one customer."""

    def __init__(self, policy: Any) -> None:
        super().__init__(always=Retryable("x"))
        self._policy = policy

    def retry_policy(self, job: Any) -> Any:
        return self._policy if job.customer == "ada" else None


@pytest.mark.parametrize(
    ("customer", "overridden", "expected"), [("ada", True, 5), ("grace", False, 3)]
)
def test_the_payloads_own_policy_comes_first(
    memory_bench: Bench, customer: str, overridden: bool, expected: int
) -> None:
    """K2: what `retry_policy(job)` returns judges that job, and the context says so."""
    bench = memory_bench
    handler = _Picky(RetryPolicy.fixed(5, "1s"))
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


def test_a_policy_that_is_none_is_a_failed_attempt(memory_bench: Bench) -> None:
    """A `retry_policy` that returns nonsense costs attempts of its job, as the set policy says."""
    bench = memory_bench
    with bench.working({bench.shop.Charge: _Picky("often")}):
        bench.producer.enqueue(bench.shop.Charge("ada"))
        bench.until(lambda: bench.dead(bench.orders))
    [(attempt, reason)] = bench.dead(bench.orders)
    assert 3 == attempt
    assert "handler panicked: TypeError: retry_policy() returned 'often'" in reason


def test_the_hook_hears_of_every_dead_letter(bench: Bench) -> None:
    """L1: cause, attempts, limit and reason are those of the dead letter."""
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


def test_the_hook_comes_before_the_dead_letter(memory_bench: Bench) -> None:
    """L2: while the hook runs the job is not dead yet; a hook that fails changes nothing."""
    bench = memory_bench
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


def test_the_hook_is_silent_otherwise_and_correlation_ids_stay(bench: Bench) -> None:
    """L4: no hook for success, retry and deferral; the correlation id is in every attempt."""
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
