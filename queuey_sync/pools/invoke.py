"""One attempt, from payload bytes to `Result`: decode, call, classify. The same in every pool.

Nothing that a handler raises leaves this module as an exception, ``SystemExit`` included. Each run
has `contextvars` of its own, so nothing that one job sets is seen by the next.
"""

import contextvars
import inspect
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from queuey_sync.context import JobContext, set_current
from queuey_sync.errors import (
    Deferred,
    Fatal,
    JobError,
    SerializationError,
    SoftTimeout,
    StartError,
    Stopping,
)
from queuey_sync.handlers import Around, Handlers
from queuey_sync.observe.escaping import describe, traceback_of
from queuey_sync.pools.base import STOPPED, SUCCEEDED, Attempt, Kind, Result, timed_out
from queuey_sync.retry import RetryPolicy

log = logging.getLogger(__name__)


def run_on_start(handlers: Handlers[Any]) -> None:
    """Call what is to run once before any handler does.

    Raises:
        StartError: One of them raised.
    """
    for function in handlers.start_hooks:
        try:
            function()
        except BaseException as error:
            text = f"on_start {getattr(function, '__qualname__', function)}: {describe(error)}"
            raise StartError(text) from error


def run_on_end(handlers: Handlers[Any]) -> None:
    """Call what a thread or a child is to do after its last job. What it raises is logged."""
    for function in handlers.end_hooks:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - all its jobs are settled
            log.warning("%s: %s", getattr(function, "__qualname__", function), describe(error))


def invoke(attempt: Attempt, arounds: Sequence[Around] = ()) -> Result:
    """Run the handler of an attempt inside these context managers, and say what came of it."""
    return contextvars.copy_context().run(_invoke, attempt, arounds)


def _invoke(attempt: Attempt, arounds: Sequence[Around]) -> Result:
    try:
        job = attempt.handler.job_type.decode(attempt.payload)
    except SerializationError as error:
        return Result(kind=Kind.UNDECODABLE, reason=f"decode error: {error}")
    except MemoryError as error:  # no fault of the payload
        return _classify(error, None, stopping=False)
    policy = None
    context = attempt.context
    try:
        if attempt.handler.own_policy is not None:
            policy = _own_policy(attempt, job)
            if policy is not None:
                context = msgspec.structs.replace(context, max_attempts=policy.max_attempts)
        set_current(context)
        if arounds:
            with ExitStack() as stack:
                for around in arounds:
                    stack.enter_context(around())
                _call(attempt, job, context)
        else:
            _call(attempt, job, context)
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is one job's outcome
        if isinstance(error, SoftTimeout) and attempt.soft_limit is not None:
            return timed_out(attempt.soft_limit, policy)
        return _classify(error, policy, stopping=context.stopping)
    return SUCCEEDED


def _call(attempt: Attempt, job: object, context: JobContext) -> None:
    with attempt.interrupt:
        returned = attempt.handler.call(job, context)
    if returned is not None:
        _raise_returned(returned)


def _raise_returned(returned: object) -> None:
    """A returned error counts as raised; a coroutine would silently never run."""
    if isinstance(returned, JobError):
        raise returned
    if inspect.iscoroutine(returned):
        returned.close()
        raise TypeError("the handler returned a coroutine; handlers are plain functions here")


def _own_policy(attempt: Attempt, job: object) -> RetryPolicy | None:
    assert attempt.handler.own_policy is not None  # noqa: S101 - narrows the type for the checkers
    policy = attempt.handler.own_policy(job)
    if policy is not None and not isinstance(policy, RetryPolicy):
        raise TypeError(f"retry_policy() returned {policy!r}, which is no RetryPolicy")
    return policy


def _classify(error: BaseException, policy: RetryPolicy | None, *, stopping: bool) -> Result:
    if isinstance(error, JobError):
        return _job_error(error, policy)
    if isinstance(error, Stopping) and stopping:
        return STOPPED
    return Result(
        kind=Kind.RETRYABLE,
        reason=f"handler panicked: {describe(error)}",
        policy=policy,
        traceback=traceback_of(error),
    )


def _job_error(error: JobError, policy: RetryPolicy | None) -> Result:
    match error:
        case Deferred():
            return Result(kind=Kind.DEFERRED, reason=error.reason, delay=error.delay)
        case Fatal():
            kind = Kind.FATAL
        case _:
            kind = Kind.RETRYABLE
    trace = traceback_of(error) if error.__cause__ is not None else ""
    reason = getattr(error, "reason", None)
    if reason is None:  # a subclass that never called the constructor of its base
        reason = describe(error)
    return Result(kind=kind, reason=reason, policy=policy, traceback=trace)
