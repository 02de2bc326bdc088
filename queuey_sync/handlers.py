"""Handlers: which code runs which job, and which retry policy judges it.

A handler is a plain function ``(job, ctx)`` or ``(job)``, or an object with ``handle`` and, if it
wants, ``retry_policy(job)``. Everything that can be wrong with one is refused when it is
registered, but for two handlers of one job type: those meet when a worker is built. Nothing here
runs a handler; that is `pools/invoke.py`.
"""

import functools
import inspect
import logging
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, overload

from queuey_sync.context import JobContext
from queuey_sync.errors import ConfigurationError, DuplicateHandler
from queuey_sync.jobs import Job, JobType, job_type_of
from queuey_sync.queues import QueueSet, check_queue_set
from queuey_sync.retry import RetryPolicy, check_policy

Q = TypeVar("Q", bound=QueueSet)
J = TypeVar("J", bound=Job[Any])
J_contra = TypeVar("J_contra", bound=Job[Any], contravariant=True)
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])

Around = Callable[[], AbstractContextManager[object]]
A = TypeVar("A", bound=Around)

_log = logging.getLogger(__name__)


class JobHandler(Protocol[J_contra]):
    """An object that handles jobs; it may have ``retry_policy(job) -> RetryPolicy | None`` too."""

    def handle(self, job: J_contra, ctx: JobContext, /) -> object:
        """Run one job; what it returns is ignored, unless it is a `JobError`."""
        ...


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered handler.

    Attributes:
        job_type: The job type that it handles.
        call: Runs it; always takes the job and the context.
        source: What was registered.
        own_policy: Its ``retry_policy``, asked for each job before it runs; None when it has none.
    """

    job_type: JobType
    call: Callable[[Any, JobContext], object]
    source: object
    own_policy: Callable[[Any], RetryPolicy | None] | None


class Handlers(Generic[Q]):
    """The handlers of an app, in the order of their registration.

    >>> from queuey_sync.queues import queue
    >>> class Queues(QueueSet):
    ...     EMAILS = queue()
    >>> class SendEmail(Job[Queues], queue=Queues.EMAILS, name="mail.send"):
    ...     to: str
    >>> handlers = Handlers(Queues)
    >>> @handlers.register
    ... def send(job: SendEmail, ctx: JobContext) -> None:
    ...     print("to", job.to, "attempt", ctx.attempt)
    >>> handlers.by_name()["mail.send"].call(SendEmail("ada"), JobContext())
    to ada attempt 1
    """

    def __init__(self, queues: type[Q]) -> None:
        check_queue_set(queues, "queues")
        self.queues = queues
        # Appended to by whoever registers, which is done before a worker is built; then only read.
        self._handlers: list[Handler] = []
        self.arounds: list[Around] = []
        self.start_hooks: list[Callable[[], object]] = []
        self.end_hooks: list[Callable[[], object]] = []
        """Called in each thread and each child that has run its last job; see `run_on_end`."""
        self.preparations: list[Callable[[], object]] = []
        """Called in each child before anything else of the app is imported there."""

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers)

    # A job class can be called too, so the checkers see an overlap: the first match decides.
    @overload
    def register(  # type: ignore[overload-overlap]
        self, target: type[Job[Q]], /
    ) -> Callable[[F], F]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def register(
        self, target: type[Job[Q]], handler: JobHandler[Any] | Callable[..., object], /
    ) -> None: ...
    @overload
    def register(self, target: Callable[[J, JobContext], R], /) -> Callable[[J, JobContext], R]: ...
    @overload
    def register(self, target: Callable[[J], R], /) -> Callable[[J], R]: ...
    def register(self, target: Any, handler: Any = None, /) -> Any:
        """Register a handler: ``register(function)``, or ``register(JobClass, handler)``.

        ``@register`` takes the job type from the annotation of the function's first parameter;
        ``@register(JobClass)`` names it, and lets a type checker see that the job is of this set.

        Args:
            target: A function whose first parameter is annotated with a job class, or a job class.
            handler: A function, or an object with ``handle`` and perhaps ``retry_policy``.

        Raises:
            ConfigurationError: The handler is a coroutine or a generator, takes other arguments,
                or names no job or another one; or the job belongs to another queue set.
        """
        if not _is_job_class(target):
            if handler is not None:
                raise ConfigurationError(f"register: {target!r} is no job class")
            self._add(target, None)
            return target
        if handler is not None:
            self._add(handler, target)
            return None

        def decorate(function: F) -> F:
            self._add(function, target)
            return function

        return decorate

    def around(self, factory: A, /) -> A:
        """Run every handler inside a context manager, in the thread or the process that runs it.

        The first one registered is the outermost. It sees what the handler raises, as in a ``with``
        block: what it raises itself is the outcome, so a failed commit fails the job. The job's
        context is in `current_job`.

        Args:
            factory: Makes a context manager for each run, such as a ``@contextmanager`` function.

        Raises:
            ConfigurationError: It cannot be called.
        """
        self.arounds.append(_checked_callable(factory, "around"))
        return factory

    def on_start(self, function: F, /) -> F:
        """Call a function once before any handler runs: once for threads, once in each child.

        A worker in which it raises does not start (`StartError`).

        Args:
            function: Takes nothing; what it returns is ignored.

        Raises:
            ConfigurationError: It cannot be called.
        """
        self.start_hooks.append(_checked_callable(function, "on_start"))
        return function

    def by_name(self) -> dict[str, Handler]:
        """The handlers by the name of their job type.

        Raises:
            DuplicateHandler: Two of them handle the same job type, or two of the same name.
        """
        found: dict[str, Handler] = {}
        for handler in self._handlers:
            first = found.setdefault(handler.job_type.name, handler)
            if first is not handler:
                raise _duplicate(first.job_type, handler.job_type)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        sources = [(handler.job_type.cls, handler.source) for handler in self]
        hooks = (self.arounds, self.start_hooks, self.end_hooks)
        return _restore, (Preparation(self.preparations), self.queues, sources, *hooks)

    def _add(self, source: object, job: type[Job[Any]] | None) -> None:
        call, parameter = _read(source)
        annotated = _annotated_job(source, parameter)
        if job is None:
            job = annotated
        if job is None:
            raise ConfigurationError(
                f"{_name(source)}: `{parameter}` does not tell its job: annotate it with a job"
                " class that is defined by now, or name the job: register(JobClass, handler)"
            )
        job_type = job_type_of(job)
        if annotated is not None and not issubclass(job, annotated):
            raise ConfigurationError(
                f"{_name(source)}: registered for job `{job_type.name}`,"
                f" but annotated with job `{job_type_of(annotated).name}`"
            )
        if not isinstance(job_type.queue, self.queues):
            raise ConfigurationError(
                f"{_name(source)}: job `{job_type.name}` is on {job_type.queue},"
                f" which is no queue of {self.queues.__name__}"
            )
        self._handlers.append(Handler(job_type, call, source, _own_policy(source)))


class Preparation:
    """Calls functions where it is unpickled, before the rest of the pickle is imported there."""

    def __init__(self, functions: list[Callable[[], object]]) -> None:
        self.functions = functions

    def __reduce__(self) -> tuple[Any, ...]:
        return _prepare, (self.functions,)


def _prepare(functions: list[Callable[[], object]]) -> Preparation:
    for function in functions:
        function()
    return Preparation(functions)


def _restore(
    preparation: Preparation,
    queues: type[Q],
    sources: list[tuple[type[Job[Q]], Any]],
    arounds: list[Around],
    *hooks: list[Callable[[], object]],
) -> Handlers[Q]:
    """What a pickle of handlers calls, in another process."""
    handlers = Handlers(queues)
    handlers.preparations = preparation.functions
    for job, source in sources:
        handlers.register(job, source)
    handlers.arounds.extend(arounds)
    handlers.start_hooks, handlers.end_hooks = hooks
    return handlers


def _checked_callable(function: F, name: str) -> F:
    if not callable(function):
        raise ConfigurationError(
            f"{name}: expected a function that takes nothing, got {function!r}"
        )
    return function


def resolve_policies(
    handlers: Handlers[Q],
    queue_overrides: Mapping[Q, RetryPolicy],
    job_overrides: Mapping[type[Job[Q]], RetryPolicy],
) -> dict[str, RetryPolicy]:
    """The policy that judges each handled job type, before a handler's own say, by job name.

    Highest first: the override for the job, the override for its queue, the job's own, the queue's.

    Raises:
        ConfigurationError: An override is no policy, or its key no member or no job class.
    """
    job_types = [handler.job_type for handler in handlers]
    for queue, policy in queue_overrides.items():
        if not isinstance(queue, handlers.queues):
            raise ConfigurationError(
                f"retry_overrides: {queue!r} is no queue of {handlers.queues.__name__}"
            )
        check_policy(policy, f"retry_overrides: {queue}")
        if all(job_type.queue is not queue for job_type in job_types):
            _log.debug("retry override for queue `%s` matches no handler", queue.full_name)
    by_job: dict[str, RetryPolicy] = {}
    for job, policy in job_overrides.items():
        name = job_type_of(job).name
        check_policy(policy, f"job_retry_overrides: {name}")
        by_job[name] = policy
        if all(job_type.name != name for job_type in job_types):
            _log.debug("retry override for job `%s` matches no handler", name)
    by_queue: Mapping[Any, RetryPolicy] = queue_overrides
    return {
        job_type.name: by_job.get(job_type.name) or by_queue.get(job_type.queue) or job_type.policy
        for job_type in job_types
    }


def _duplicate(first: JobType, second: JobType) -> DuplicateHandler:
    if first.cls is second.cls:
        return DuplicateHandler(first.name)
    one, other = (f"{cls.__module__}.{cls.__qualname__}" for cls in (first.cls, second.cls))
    return DuplicateHandler(
        first.name, f"{one} and {other} share the name; give one of them another name="
    )


def _is_job_class(target: object) -> typing.TypeGuard[type[Job[Any]]]:
    return isinstance(target, type) and issubclass(target, Job)


def _read(source: object) -> tuple[Callable[[Any, JobContext], object], inspect.Parameter]:
    """How to call this handler with a job and a context, and its parameter for the job."""
    function = getattr(source, "handle", source)
    if isinstance(source, type) or not callable(function):
        raise ConfigurationError(
            f"{_name(source)}: expected a function (job, ctx) or an object with handle(job, ctx)"
        )
    _refuse_async(source, function)
    try:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        wants_context = _wants_context(parameters)
        signature.bind(*(None, None) if wants_context else (None,))
        if parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
            raise TypeError(f"`{parameters[0]}` does not tell the job from the context")
    except (ValueError, TypeError, NameError) as error:
        raise ConfigurationError(
            f"{_name(source)}: a handler is called with (job, ctx) or (job): {error}"
        ) from error
    if wants_context:
        _check_context(source, parameters[1])
    return function if wants_context else _without_context(function), parameters[0]


def _refuse_async(source: object, function: Callable[..., object]) -> None:
    for one in (function, getattr(function, "__call__", None)):  # noqa: B004 - its own __call__
        if inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one):
            raise ConfigurationError(
                f"{_name(source)} is a coroutine: handlers are plain functions;"
                " call asyncio.run() inside one if you must"
            )
        if inspect.isgeneratorfunction(one):
            raise ConfigurationError(
                f"{_name(source)} is a generator: nothing would run it; a handler does not yield"
            )


def _wants_context(parameters: list[inspect.Parameter]) -> bool:
    """Whether to pass a context; a second parameter with a default may be the function's own."""
    for index, one in enumerate(parameters[:2]):
        if one.kind is one.VAR_POSITIONAL:
            return True
        if index == 1 and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            mentioned = one.name == "ctx" or "JobContext" in str(one.annotation)
            return one.default is one.empty or mentioned
    return False


def _check_context(source: object, parameter: inspect.Parameter) -> None:
    if not _fits_context(_resolved(source, parameter.annotation)):
        raise ConfigurationError(
            f"{_name(source)}: `{parameter}` is given a JobContext; annotate it so, or give an"
            " option of the handler's own a default and another name than ctx"
        )


def _fits_context(annotation: object) -> bool:
    """Whether a context may be what this describes; what cannot be told may be anything."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(_fits_context(one) for one in typing.get_args(annotation))
    if annotation in (Any, inspect.Parameter.empty) or not isinstance(annotation, type):
        return True
    return getattr(annotation, "_is_protocol", False) or issubclass(JobContext, annotation)


def _without_context(function: Callable[..., object]) -> Callable[[Any, JobContext], object]:
    def call(job: object, _ctx: JobContext) -> object:
        return function(job)

    return call


def _annotated_job(source: object, parameter: inspect.Parameter) -> type[Job[Any]] | None:
    """The job class that the parameter is annotated with, if it is one that is known by now."""
    annotation = _resolved(source, parameter.annotation)
    return annotation if _is_job_class(annotation) and annotation is not Job else None


def _resolved(source: object, annotation: object) -> object:
    """What an annotation of a handler's parameter means; text that means nothing by now stays."""
    if isinstance(annotation, str):
        function: Any = getattr(source, "handle", source)
        while isinstance(function, functools.partial):
            function = function.func
        names = getattr(inspect.unwrap(function), "__globals__", {})
        stand_in = types.SimpleNamespace(__annotations__={"one": annotation})
        with suppress(NameError, AttributeError, SyntaxError, TypeError):
            return typing.get_type_hints(stand_in, names)["one"]
    return annotation


def _own_policy(source: object) -> Callable[[Any], RetryPolicy | None] | None:
    policy: Callable[[Any], RetryPolicy | None] | None = getattr(source, "retry_policy", None)
    given: object = policy
    if given is not None and (not callable(given) or inspect.iscoroutinefunction(given)):
        raise ConfigurationError(f"{_name(source)}: retry_policy: expected a method (job)")
    return policy


def _name(source: object) -> str:
    return f"handler {getattr(source, '__qualname__', type(source).__qualname__)}"
