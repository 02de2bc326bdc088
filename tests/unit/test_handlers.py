"""Tests of handlers: what may be registered, what is refused, and which policy judges a job."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from queuey_sync.context import JobContext
from queuey_sync.errors import ConfigurationError, DuplicateHandler
from queuey_sync.handlers import Handlers
from queuey_sync.jobs import Job
from queuey_sync.retry import RetryPolicy
from tests.support.shop import Charge, Chase, Other, Refund, Shop

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


class Foreign(Job[Other], queue=Other.ELSEWHERE, name="foreign"):
    """A job of another set."""

    n: int


ADA = Charge("ada")
CTX = JobContext(attempt=2)


@pytest.fixture
def handlers() -> Handlers[Shop]:
    """No handlers yet."""
    return Handlers(Shop)


def both(job: Charge, ctx: JobContext) -> object:
    """Take both."""
    return job, ctx


def both_in_text(job: "Charge", ctx: "OnlyForCheckers") -> object:
    """Take both; the second annotation cannot be resolved at run time."""
    return job, ctx


def lone(job: Charge) -> object:
    """Take the job alone."""
    return job


def with_own_option(job: Charge, tries: int = 3) -> object:
    """Take the job, and an option of its own."""
    return job, tries


def optional_context(job: Charge, ctx: JobContext | None = None) -> object:
    """Take the context if there is one, so that it can be called by hand."""
    return job, ctx


def positional_only(job: Charge, ctx: JobContext, /, *, mailer: str = "m") -> object:
    """Take both by place only, and an option by name only."""
    return job, ctx, mailer


def rest(job: Charge, *others: object) -> object:
    """Take whatever there is."""
    return job, *others


@functools.wraps(both)
def wrapped(*args: Any, **kwargs: Any) -> object:
    """Take what the wrapped function takes."""
    return both(*args, **kwargs)


class WithMethods:
    """Bound and static methods, and a callable object."""

    def method(self, job: Charge, ctx: JobContext) -> object:
        """Take both."""
        return job, ctx

    @staticmethod
    def static(job: Charge) -> object:
        """Take the job alone."""
        return job

    def __call__(self, job: Charge) -> object:
        return job


class Clerk:
    """A handler object."""

    def handle(self, job: Charge, ctx: JobContext) -> object:
        """Take both."""
        return job, ctx


class Patient(Clerk):
    """A handler object with a policy for each job."""

    def retry_policy(self, job: Charge) -> RetryPolicy | None:
        """Be patient with ada."""
        return RetryPolicy.fixed(5, "1s") if job.customer == "ada" else None


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (both, (ADA, CTX)),
        (both_in_text, (ADA, CTX)),
        (lone, ADA),
        (with_own_option, (ADA, 3)),
        (optional_context, (ADA, CTX)),
        (positional_only, (ADA, CTX, "m")),
        (rest, (ADA, CTX)),
        (wrapped, (ADA, CTX)),
        (functools.partial(both, ctx=CTX), (ADA, CTX)),
        (functools.partial(with_own_option, tries=7), (ADA, 7)),
        (WithMethods().method, (ADA, CTX)),
        (WithMethods.static, ADA),
        (WithMethods(), ADA),
        (Clerk(), (ADA, CTX)),
    ],
    ids=lambda one: getattr(one, "__qualname__", type(one).__name__),
)
def test_registering_a_function(
    handlers: Handlers[Shop], function: Callable[..., object], result: object
) -> None:
    """The annotation gives the job type; a handler gets the context only if it takes it."""
    assert function is handlers.register(function)
    (handler,) = handlers
    assert (Charge, function) == (handler.job_type.cls, handler.source)
    assert result == handler.call(ADA, CTX)


def test_decorators(handlers: Handlers[Shop]) -> None:
    """Both decorators give the function back, and the second needs no annotation."""

    @handlers.register
    def first(job: Charge) -> object:
        return job

    @handlers.register(Chase)
    def second(job: Any, ctx: Any) -> object:
        return job, ctx

    assert ADA == first(ADA)
    assert (Chase(1), CTX) == second(Chase(1), CTX)
    assert [Charge, Chase] == [handler.job_type.cls for handler in handlers]


def test_registering_an_object(handlers: Handlers[Shop]) -> None:
    """An object is called by its handle(), and asked for its own policy."""
    handlers.register(Charge, Patient())
    handlers.register(Refund, lambda job: job)
    charge, refund = handlers
    assert (ADA, CTX) == charge.call(ADA, CTX)
    assert charge.own_policy is not None
    assert RetryPolicy.fixed(5, "1s") == charge.own_policy(ADA)
    assert charge.own_policy(Charge("grace")) is None
    assert refund.own_policy is None
    assert Refund("ada") == refund.call(Refund("ada"), CTX)


def test_a_handler_may_take_a_wider_job(handlers: Handlers[Shop]) -> None:
    """A handler annotated with a parent of the job, or with Job, handles it."""

    def anything(job: Job[Any]) -> None:
        """Take any job."""

    def whatever(job: Job) -> None:  # type: ignore[type-arg]
        """Take any job."""

    handlers.register(Refund, both)
    handlers.register(Charge, anything)
    handlers.register(Chase, whatever)
    assert {"shop.Refund", "shop.Charge", "shop.Chase"} == set(handlers.by_name())


async def coroutine(job: Charge) -> None:
    """Be a coroutine."""


async def async_generator(job: Charge) -> AsyncIterator[int]:
    """Be an asynchronous generator."""
    yield 1


def generator(job: Charge) -> Iterator[int]:
    """Be a generator."""
    yield 1


class AsyncClerk:
    """A handler object with a coroutine."""

    async def handle(self, job: Charge, ctx: JobContext) -> None:
        """Be a coroutine."""

    async def __call__(self, job: Charge) -> None:
        """Be one too."""


class AsyncCallable:
    """A callable object that is a coroutine."""

    async def __call__(self, job: Charge) -> None:
        """Be a coroutine."""


class AsyncPolicy(Clerk):
    """A handler object whose policy is a coroutine."""

    async def retry_policy(self, job: Charge) -> None:
        """Be a coroutine."""


class WrongPolicy(Clerk):
    """A handler object whose policy is no method."""

    retry_policy = RetryPolicy.none()


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (coroutine, "handler coroutine is a coroutine: handlers are plain functions"),
        (functools.partial(coroutine), "is a coroutine"),
        (async_generator, "is a coroutine"),
        (generator, "handler generator is a generator"),
        (AsyncClerk(), "AsyncClerk is a coroutine"),
        (AsyncCallable(), "AsyncCallable is a coroutine"),
        (AsyncPolicy(), "AsyncPolicy: retry_policy"),
        (WrongPolicy(), "WrongPolicy: retry_policy"),
        (lambda: None, r"called with \(job, ctx\) or \(job\): too many positional"),
        (lambda job, ctx, more: None, "missing a required argument: 'more'"),
        (lambda *, job: None, "too many positional"),
        (lambda *jobs: None, r"called with \(job, ctx\) or \(job\): `\*jobs`"),
        (lambda job, *, mailer: None, "missing a required argument: 'mailer'|mailer"),
        (Clerk, "handler Clerk: expected a function"),
        (5, "handler int: expected a function"),
        (None, "handler NoneType: expected a function"),
        ("shop.Charge", "handler str: expected a function"),
    ],
)
def test_refused_whatever_the_job(handlers: Handlers[Shop], function: Any, text: str) -> None:
    """What could never run a job is refused in both forms of registering, naming the handler."""
    with pytest.raises(ConfigurationError, match=text):
        handlers.register(function)
    with pytest.raises(ConfigurationError, match=text):
        handlers.register(Charge)(function)
    assert [] == list(handlers)


def test_a_function_that_only_starts_a_loop_is_plain(handlers: Handlers[Shop]) -> None:
    """A plain function around a coroutine, as `asyncio.run` makes it, is welcome."""

    @functools.wraps(coroutine)
    def plain(job: Charge) -> None:
        asyncio.run(coroutine(job))

    handlers.register(plain)
    assert ["shop.Charge"] == list(handlers.by_name())


def annotated_with(annotation: object) -> Callable[..., object]:
    """A function whose parameter has this annotation."""

    def handle(job: Any) -> None:
        """Handle nothing."""

    handle.__annotations__["job"] = annotation
    return handle


@pytest.mark.parametrize("annotation", [int, "Missing", "no type", Charge | Chase, Job, Any, None])
def test_an_annotation_must_tell_the_job(handlers: Handlers[Shop], annotation: object) -> None:
    """Without a job class in the annotation the text shows it, and both ways out."""
    with pytest.raises(ConfigurationError, match=r"`job.*` does not tell its job: .*register\(Job"):
        handlers.register(annotated_with(annotation))
    handlers.register(Charge, annotated_with(annotation))


def test_a_lambda_has_no_annotation(handlers: Handlers[Shop]) -> None:
    """A lambda needs its job named."""
    with pytest.raises(ConfigurationError, match="<lambda>: `job` does not tell its job"):
        handlers.register(lambda job: None)


def test_the_annotation_must_not_name_another_job(handlers: Handlers[Shop]) -> None:
    """A handler that says one job and is registered for another is refused, naming both."""
    with pytest.raises(ConfigurationError, match=r"for job `shop.Chase`, but .* `shop.Charge`"):
        handlers.register(Chase)(both)
    assert [] == list(handlers)


@pytest.mark.parametrize(
    "register",
    [
        lambda handlers, function: handlers.register(function),
        lambda handlers, function: handlers.register(Foreign)(function),
        lambda handlers, function: handlers.register(Foreign, function),
    ],
)
def test_h4_a_job_of_another_set_is_refused(
    handlers: Handlers[Shop], register: Callable[[Any, Any], object]
) -> None:
    """H4: a handler for a job of another set is refused at registration, naming the job."""
    with pytest.raises(ConfigurationError, match=r"job `foreign` is on Other\.ELSEWHERE.* of Shop"):
        register(handlers, annotated_with(Foreign))
    assert [] == list(handlers)


def test_a_second_argument_needs_a_job_class_first(handlers: Handlers[Shop]) -> None:
    """Arguments in the wrong order are refused, not dropped."""
    wrong: Any = handlers
    with pytest.raises(ConfigurationError, match="is no job class"):
        wrong.register(both, Charge)


def test_j2_duplicates_meet_when_a_worker_is_built(handlers: Handlers[Shop]) -> None:
    """J2: two handlers of a job can be registered; looking them up by name is the error."""
    handlers.register(both)
    handlers.register(Chase, lambda job: None)
    handlers.register(lone)
    assert 3 == len(list(handlers))
    with pytest.raises(
        DuplicateHandler, match=r"^handler for job type `shop.Charge` registered twice$"
    ):
        handlers.by_name()


def test_handlers_are_found_by_name(handlers: Handlers[Shop]) -> None:
    """By name each job type has its handler, in the order of registration."""
    handlers.register(Chase, lambda job: None)
    handlers.register(both)
    assert ["shop.Chase", "shop.Charge"] == list(handlers.by_name())
    assert list(handlers) == list(handlers.by_name().values())


def test_two_jobs_of_one_name_are_told_apart(handlers: Handlers[Shop]) -> None:
    """A name that two classes share is refused with both of them, for it is not a handler twice."""

    class Copied(Job[Shop], queue=Shop.MAIL, name="shop.Charge"):
        n: int

    handlers.register(both)
    handlers.register(Copied, lambda job: None)
    with pytest.raises(
        DuplicateHandler, match=r"twice: .*\.Charge and .*\.Copied .* another name="
    ):
        handlers.by_name()


@pytest.mark.parametrize("wrong", [3, None, Shop.MAIL])
def test_handlers_need_a_queue_set(wrong: Any) -> None:
    """Anything else is refused at once, naming the argument."""
    with pytest.raises(ConfigurationError, match=r"^queues: expected a queue set"):
        Handlers(wrong)
