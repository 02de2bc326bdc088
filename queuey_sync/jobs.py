"""Jobs: typed, frozen classes, each bound to one queue of one queue set.

A job class carries a `JobType`: its name, its queue, its own policy, and how it becomes JSON and
comes back. Both ways are built when the class is declared, so that a field that cannot travel is an
error at import and not at the first job. Nothing here knows envelopes, brokers or handlers; read
`envelope.py` and `handlers.py` next.
"""

import dataclasses
import math
import typing
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, Generic, Never, TypeVar, dataclass_transform

import msgspec

from queuey_sync.durations import Duration
from queuey_sync.errors import ConfigurationError, SerializationError
from queuey_sync.queues import QueueSet, refuse_unknown
from queuey_sync.retry import RetryPolicy, check_duration, check_policy, check_text

Q = TypeVar("Q", bound=QueueSet)
_LONGEST_LIMIT = timedelta(days=365)
"""Longer waits overflow the clocks of some of the calls that keep it."""
_MAIN_MODULES = ("__main__", "__mp_main__")
_TEXTLESS_KEYS = (
    msgspec.inspect.TupleType,
    msgspec.inspect.VarTupleType,
    msgspec.inspect.NamedTupleType,
    msgspec.inspect.FrozenSetType,
    msgspec.inspect.DataclassType,
    msgspec.inspect.StructType,
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class JobType:
    """What the library knows of one job class; found with `job_type_of`.

    Attributes:
        name: The ``job_type`` of its envelopes, by which a worker picks the handler.
        queue: The member of the queue set that it is bound to.
        retry: Its own policy; None leaves it to the queue's.
        timeout: Its own time limit; None leaves it to the worker's.
        soft_timeout: Its own soft time limit; None leaves it to the worker's.
        cls: The class itself.
    """

    name: str
    queue: QueueSet
    retry: RetryPolicy | None
    timeout: timedelta | None
    soft_timeout: timedelta | None
    cls: "type[Job[Any]]"
    _from_json: Callable[[bytes | msgspec.Raw], "Job[Any]"]
    _field_count: int

    @property
    def policy(self) -> RetryPolicy:
        """Its own policy, or its queue's."""
        return self.retry or self.queue.config.retry

    def encode(self, job: "Job[Any]") -> bytes:
        """The job as compact JSON.

        Raises:
            SerializationError: A value cannot travel: NaN, an infinity, a lone surrogate, an object
                of a type that JSON does not have, or one that `decode` would refuse.
        """
        try:
            if len(vars(job)) < self._field_count:
                # A decoded job leaves its defaults to the class; on the wire they are written.
                job = dataclasses.replace(typing.cast("Any", job))
            payload = _to_json(job)
            # msgspec writes NaN and the infinities as null, or as such a key.
            if b"null" in payload or b'nan":' in payload or b'inf":' in payload:
                _refuse_not_finite(msgspec.to_builtins(job))
            self._from_json(payload)  # checkers are optional: a wrong type fails here, not later
        except Exception as error:
            fault = str(error) or type(error).__name__
            raise SerializationError(f"job `{self.name}`: {fault}") from error
        return payload

    def decode(self, payload: bytes | msgspec.Raw) -> "Job[Any]":
        """The job in a payload: types are exact, unknown keys are ignored.

        The bytes must be valid UTF-8, as those of a decoded envelope are.

        Raises:
            SerializationError: A field is missing or of another type, or the class refused a value.
            MemoryError: There is too little for it now.
        """
        try:
            return self._from_json(payload)
        except MemoryError:
            raise
        except Exception as error:  # whatever __post_init__ raises, and RecursionError
            raise SerializationError(str(error) or type(error).__name__) from error


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Job(Generic[Q]):
    """The base of all jobs: subclass ``Job[Queues]`` and declare fields as in a dataclass.

    The subclass becomes a frozen dataclass. Its class keywords are ``queue``, the member that it is
    bound to; ``name``, the module and the class by default; ``retry``, its own policy, the queue's
    by default; and ``timeout`` and ``soft_timeout``, its own time limits, the worker's by default.
    A subclass of a job class is a job of its own and gives ``queue`` again.

    Raises:
        ConfigurationError: A keyword is unknown or wrong, the class is generic, or a field has a
            type that cannot travel; the text names it.

    >>> from queuey_sync.queues import QueueSet, queue
    >>> class Queues(QueueSet):
    ...     EMAILS = queue()
    >>> class SendEmail(Job[Queues], queue=Queues.EMAILS, name="mail.send"):
    ...     to: str
    ...     copies: int = 1
    >>> SendEmail(to="ada@example.org")
    SendEmail(to='ada@example.org', copies=1)
    """

    __queuey__: ClassVar[JobType]

    def __init_subclass__(
        cls,
        *,
        queue: Q = typing.cast("Any", None),  # noqa: B008 - refused in our words
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        soft_timeout: Duration | None = None,
        **unknown: Never,
    ) -> None:
        super().__init_subclass__()
        where = f"job {cls.__qualname__}"
        refuse_unknown(unknown, where, {})
        _check_queue(cls, where, queue)
        if retry is not None:
            check_policy(retry, f"{where}: retry")
        job_name = _default_name(cls) if name is None else name
        check_text(job_name, f"{where}: name")
        hard, soft = check_limits(timeout, soft_timeout, f"{where}: ")
        _make_dataclass(cls, where)
        decoder = _build_decoder(cls, where)
        count = len(dataclasses.fields(typing.cast("Any", cls)))
        cls.__queuey__ = JobType(job_name, queue, retry, hard, soft, cls, decoder.decode, count)


def job_type_of(job: "Job[Any] | type[Job[Any]]") -> JobType:
    """The `JobType` of a job, or of a job class.

    Raises:
        ConfigurationError: It is neither.
    """
    try:
        return job.__queuey__
    except AttributeError:
        raise ConfigurationError(
            f"{job!r} is no job: subclass Job[Queues] and give queue="
        ) from None


def check_limits(
    timeout: Duration | None, soft_timeout: Duration | None, where: str = "", hard: str = "timeout"
) -> tuple[timedelta | None, timedelta | None]:
    """Read a time limit and a soft one, which must end before it.

    Raises:
        ConfigurationError: One of them cannot be read, or the soft one is not the shorter.
    """
    limit = None if timeout is None else check_duration(timeout, where + hard)
    soft = None if soft_timeout is None else check_duration(soft_timeout, f"{where}soft_timeout")
    for key, value in ((hard, limit), ("soft_timeout", soft)):
        if value is not None and value > _LONGEST_LIMIT:
            raise ConfigurationError(f"{where}{key}: at most a year, got {value}")
    if limit is not None and soft is not None and soft >= limit:
        raise ConfigurationError(f"{where}soft_timeout: it must be shorter than {hard}")
    return limit, soft


_to_json = msgspec.json.Encoder().encode


def _check_queue(cls: type[Job[Any]], where: str, queue: object) -> None:
    if not isinstance(queue, QueueSet):
        got = "it is missing" if queue is None else f"got {queue!r}"
        raise ConfigurationError(f"{where}: queue: expected a member of a queue set, {got}")
    for ancestor in cls.__mro__:
        for base in ancestor.__dict__.get("__orig_bases__", ()):
            (owner,) = typing.get_args(base) if typing.get_origin(base) is Job else (None,)
            if isinstance(owner, type) and not isinstance(queue, owner):
                raise ConfigurationError(
                    f"{where}: queue: {queue} is no member of {owner.__name__}"
                )


def _default_name(cls: type[Job[Any]]) -> str:
    place = "__main__" if cls.__module__ in _MAIN_MODULES else "a function"
    if place == "__main__" or "<locals>" in cls.__qualname__:
        raise ConfigurationError(
            f"job {cls.__qualname__}: name: a job class in {place} has no name that another process"
            " could know it by; give name="
        )
    return f"{cls.__module__}.{cls.__qualname__}"


def _make_dataclass(cls: type[Job[Any]], where: str) -> None:
    if getattr(cls, "__parameters__", ()):
        raise ConfigurationError(
            f"{where}: a job class must not be generic; write Job[Queues] with your queue set, and"
            " fields of concrete types"
        )
    try:
        dataclasses.dataclass(frozen=True)(cls)
    except Exception as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _build_decoder(cls: type[Job[Any]], where: str) -> "msgspec.json.Decoder[Job[Any]]":
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception as error:
        raise ConfigurationError(
            f"{where}: {_field_naming(cls, error)}{error}. Field types are needed when the class is"
            " declared: define them before it, at module level, and import them outside"
            " TYPE_CHECKING"
        ) from error
    for name, hint in hints.items():
        if typing.get_origin(hint) is not ClassVar and hint is not ClassVar:
            _check_field(f"{where}: field {name}", hint)
    return msgspec.json.Decoder(cls)


def _field_naming(cls: type, error: Exception) -> str:
    missing = getattr(error, "name", None)
    for field in dataclasses.fields(cls):
        if missing and missing in repr(field.type):
            return f"field {field.name}: "
    return ""


def _check_field(where: str, hint: object) -> None:
    try:
        msgspec.json.Decoder(hint)
        foreign = _foreign_type(msgspec.inspect.type_info(hint), set())
    except Exception as error:
        raise ConfigurationError(f"{where}: {error}") from error
    if foreign is not None:
        raise ConfigurationError(
            f"{where}: {foreign} cannot travel as JSON; use plain types, enums, dataclasses, UUIDs"
            " or dates, or Any for whatever JSON holds"
        )


def _foreign_type(node: object, seen: set[int]) -> str | None:
    """A type somewhere in this type that msgspec would refuse only when the first job travels."""
    parts: tuple[object, ...] = ()
    if isinstance(node, msgspec.inspect.CustomType):
        return node.cls.__qualname__
    if isinstance(node, msgspec.inspect.DictType) and isinstance(node.key_type, _TEXTLESS_KEYS):
        return "a dict whose keys are no text or numbers"
    if isinstance(node, tuple):
        parts = node
    elif isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field) and id(node) not in seen:
        seen.add(id(node))  # types may hold themselves
        parts = tuple(getattr(node, name) for name in node.__struct_fields__)
    found = (_foreign_type(part, seen) for part in parts)
    return next((foreign for foreign in found if foreign is not None), None)


def _refuse_not_finite(value: object) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no JSON number")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_not_finite(key)
            _refuse_not_finite(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _refuse_not_finite(item)
