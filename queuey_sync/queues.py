"""Queue sets: the closed, ordered list of queues that an app knows, declared as an enum.

Declarations only: nothing here talks to a broker or knows what runs. Every mistake is refused when
the class is created, with a text that names the key. `jobs.py` binds job types to the members.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, Never, Self, get_args

from queuey_sync.durations import Duration
from queuey_sync.errors import ConfigurationError
from queuey_sync.retry import (
    RetryPolicy,
    check_boolean,
    check_duration,
    check_integer,
    check_policy,
    check_text,
)

DEAD_SUFFIX = ".dead"
"""The dead-letter queue of ``q`` is ``q.dead``, unless a backend's options say otherwise."""
DEFERRED_SUFFIX = ".deferred"
"""The hold queues of ``q`` are ``q.deferred.<ms>``, unless a backend's options say otherwise."""
LONGEST_TTL_MS = 2_147_483_647
"""The longest time that a hold queue can keep a message: about 24.8 days."""
LONGEST_NAME = 255
"""Bytes of a name; AMQP cannot encode more."""

Kind = Literal["classic", "quorum"]
"""How RabbitMQ keeps a queue: on one node, or on several that agree. Other backends ignore it."""
HOLD_SUFFIXES: Mapping[Kind, str] = {"classic": "", "quorum": ".quorum"}
"""The hold queues of a quorum queue ``q`` are ``q.deferred.quorum.<ms>``: it is another queue."""

_DERIVED = re.compile(
    rf"(.+)(?:{re.escape(DEAD_SUFFIX)}|{re.escape(DEFERRED_SUFFIX)}(?:\.quorum)?\.[0-9]+)",
    re.DOTALL,
)
_LEVELS = 10
_ONE_ATTEMPT = RetryPolicy.none()
_SHORTEST_TTL = timedelta(milliseconds=1)
_LONGEST_TTL = timedelta(milliseconds=2**32 - 1)
_SET_OPTIONS = {"prefix": "the class: class Queues(QueueSet, prefix=...)"}
_MEMBER_OPTIONS: dict[str, str] = dict.fromkeys(
    ("name", "prefetch", "durable", "message_ttl", "max_priority", "retry"),
    "a member: EMAILS = queue(...)",
)


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """What a backend must know of one queue; each member of a `QueueSet` carries a checked one.

    Made by hand it is not checked, so that tests and backends can describe any queue.

    Attributes:
        full_name: The name on the broker.
        prefetch: How many unsettled deliveries one worker may hold; 0 is unlimited.
        durable: Whether the queue survives a restart of the broker.
        message_ttl: How long a job may wait before the broker drops it; None is for ever.
        max_priority: The highest priority level; None for a queue without levels (0 becomes None).
        retry: Judges the jobs on this queue that have no policy of their own.
        kind: How RabbitMQ keeps it.
    """

    full_name: str
    prefetch: int = 16
    durable: bool = True
    message_ttl: timedelta | None = None
    max_priority: int | None = _LEVELS
    retry: RetryPolicy = _ONE_ATTEMPT
    kind: Kind = "classic"

    def __post_init__(self) -> None:
        if self.max_priority == 0:
            object.__setattr__(self, "max_priority", None)

    @property
    def top_level(self) -> int:
        """The level that a deferred job comes back with; 0 on a queue without levels."""
        return self.max_priority or 0


class _Declared:
    """What `queue()` returns. Equal only to itself: equal values of an enum become aliases."""

    def __init__(self, name: str | None, kind: Kind | None, config: QueueConfig) -> None:
        self.name = name
        self.kind = kind
        self.config = config


def queue(
    *,
    name: str | None = None,
    prefetch: int = 16,
    durable: bool = True,
    message_ttl: Duration | None = None,
    max_priority: int = 10,
    retry: RetryPolicy | None = None,
    kind: Kind | None = None,
    **unknown: Never,
) -> object:
    """Declare one queue, as the value of a member of a `QueueSet`.

    Args:
        name: Its name behind the prefix; the member's name in snake_case by default.
        prefetch: How many unsettled deliveries one worker may hold, 1 to 65535.
        durable: Whether it survives a restart of the broker.
        message_ttl: How long a job may wait before the broker drops it, 1 ms to 4294967295 ms.
        max_priority: The highest priority level, 1 to 255; 0 makes it a queue without levels. A
            quorum queue has two levels of the broker's own, and takes no other number here.
        retry: Judges the jobs that have no policy of their own; one attempt by default.
        kind: How RabbitMQ keeps it, ``"classic"`` or ``"quorum"``; by default as its set says.
        **unknown: Nothing; what does not exist is refused by name.

    Raises:
        ConfigurationError: An option is unknown or out of its range; the text names it.
    """
    refuse_unknown(unknown, "queue()", _SET_OPTIONS)
    if name is not None:
        check_text(name, "name")
    check_integer(prefetch, "prefetch", 1, 65535)
    check_boolean(durable, "durable")
    check_integer(max_priority, "max_priority", 0, 255)
    if kind is not None:
        _check_kind(kind, "kind")
    ttl = None if message_ttl is None else _check_ttl(message_ttl)
    policy = _ONE_ATTEMPT if retry is None else retry
    check_policy(policy, "retry")
    return _Declared(name, kind, QueueConfig("", prefetch, durable, ttl, max_priority, policy))


class QueueSet(enum.Enum):
    """The queues of an app; subclass it, with one `queue()` for each member.

    The class keyword ``prefix`` goes before each name, with a dot between; ``kind`` is that of the
    members which do not give their own.

    >>> class Queues(QueueSet, prefix="shop"):
    ...     EMAILS = queue(prefetch=10)
    ...     IMAGES = queue(name="img")
    >>> [member.full_name for member in Queues]
    ['shop.emails', 'shop.img']
    >>> Queues.by_name("shop.img") is Queues.IMAGES
    True
    """

    _config: QueueConfig

    def __init_subclass__(
        cls, *, prefix: str | None = None, kind: Kind = "classic", **unknown: Never
    ) -> None:
        super().__init_subclass__()
        refuse_unknown(unknown, cls.__name__, _MEMBER_OPTIONS)
        _check_kind(kind, f"{cls.__name__}: kind")
        if prefix is not None:
            _check_prefix(prefix)
        if not cls.__members__:
            raise ConfigurationError(f"{cls.__name__}: a queue set needs at least one queue()")
        taken: dict[str, str] = {}
        for key, member in cls.__members__.items():
            config = _configure(cls, key, member, prefix, kind)
            other = taken.setdefault(config.full_name, key)
            if other != key:
                raise ConfigurationError(
                    f"{cls.__name__}: {other} and {key} both have the name `{config.full_name}`;"
                    " give one of them another name="
                )
            member._config = config  # noqa: SLF001 - its own class sets it
        _refuse_derived_names(cls.__name__, taken)

    def __repr__(self) -> str:
        return f"<{self}: {self.full_name}>"

    def __reduce_ex__(self, _protocol: object) -> tuple[object, ...]:
        # An enum may travel by its value; ours is equal only to itself, so it travels by its name.
        return getattr, (type(self), self.name)

    @property
    def config(self) -> QueueConfig:
        """What a backend must know of this queue."""
        return self._config

    @property
    def full_name(self) -> str:
        """The name on the broker, prefix included."""
        return self._config.full_name

    @classmethod
    def by_name(cls, full_name: str) -> Self | None:
        """The member with this name on the broker, or None."""
        return next((member for member in cls if member.full_name == full_name), None)


def _configure(
    queues: type[QueueSet], key: str, member: QueueSet, prefix: str | None, kind: Kind
) -> QueueConfig:
    declared: object = member.value
    if not isinstance(declared, _Declared):
        raise ConfigurationError(f"{queues.__name__}.{key}: expected queue(...), got {declared!r}")
    if member.name != key:
        raise ConfigurationError(
            f"{queues.__name__}: {member.name} and {key} share one queue(...); each needs its own"
        )
    if hasattr(QueueSet, key):
        raise ConfigurationError(
            f"{queues.__name__}.{key}: a queue set has an attribute of this name; rename the member"
            f" and keep the queue's name with name={key!r}"
        )
    name = declared.name or snake_case(key)
    if not name:
        raise ConfigurationError(f"{queues.__name__}.{key}: the member's name is empty; give name=")
    full_name = name if prefix is None else f"{prefix}.{name}"
    config = replace(declared.config, full_name=full_name, kind=declared.kind or kind)
    _check_full_name(config, f"{queues.__name__}.{key}: name")
    if config.kind == "quorum":
        _check_quorum(config, f"{queues.__name__}.{key}")
    return config


def _check_quorum(config: QueueConfig, where: str) -> None:
    if config.max_priority != _LEVELS:
        raise ConfigurationError(
            f"{where}: max_priority: a quorum queue has two levels of the broker's own; leave it"
            ' out, or give kind="classic"'
        )
    if not config.durable:
        raise ConfigurationError(
            f"{where}: durable: a quorum queue is always durable; leave it out, or give"
            ' kind="classic"'
        )


def _check_full_name(config: QueueConfig, where: str) -> None:
    name = config.full_name
    check_text(name, where)
    if name.startswith("amq."):
        raise ConfigurationError(
            f"{where}: `{name}` begins with `amq.`, which is reserved for the broker itself; give"
            " another name= or prefix="
        )
    size = len(name.encode())
    room = LONGEST_NAME - len(f"{DEFERRED_SUFFIX}{HOLD_SUFFIXES[config.kind]}.{LONGEST_TTL_MS}")
    if size > room:
        raise ConfigurationError(
            f"{where}: `{name}` has {size} bytes; at most {room} leave room for its hold queues;"
            " give a shorter name= or prefix="
        )


def _refuse_derived_names(where: str, keys: Mapping[str, str]) -> None:
    for name, key in keys.items():
        derived = _DERIVED.fullmatch(name)
        if derived and derived[1] in keys:
            raise ConfigurationError(
                f"{where}.{key}: name: `{name}` is kept for the dead letters or deferred jobs of"
                f" {where}.{keys[derived[1]]}; give one of them another name="
            )


def check_queue_set(value: object, key: str) -> None:
    """Refuse what is no queue set."""
    if not isinstance(value, type) or not issubclass(value, QueueSet) or value is QueueSet:
        raise ConfigurationError(
            f"{key}: expected a queue set, a subclass of QueueSet, got {value!r}"
        )


def refuse_unknown(unknown: Mapping[str, object], where: str, homes: Mapping[str, str]) -> None:
    """Refuse options that do not exist here, and say where they belong if that is known."""
    for key in unknown:
        hint = f"; it belongs to {homes[key]}" if key in homes else ""
        raise ConfigurationError(f"{where}: unknown option {key!r}{hint}")


def snake_case(name: str) -> str:
    """The name of a queue whose member has this name.

    >>> snake_case("SEND_EMAILS"), snake_case("XMLHTTPRequest"), snake_case("ImageResize2")
    ('send_emails', 'xmlhttp_request', 'image_resize2')
    """
    words = ""
    for index, char in enumerate(name):
        before, after = name[index - 1 : index], name[index + 1 : index + 2]
        starts_word = char.isupper() and (
            before.islower() or before.isdigit() or (before.isupper() and after.islower())
        )
        if (char == "_" or starts_word) and words and not words.endswith("_"):
            words += "_"
        if char != "_":
            words += char
    return words.lower()


def _check_prefix(prefix: object) -> None:
    check_text(prefix, "prefix")
    if str(prefix).endswith("."):
        raise ConfigurationError(f"prefix: {prefix!r} must not end in a dot; it is added")


def _check_kind(value: object, key: str) -> None:
    if value not in get_args(Kind):
        kinds = " or ".join(repr(one) for one in get_args(Kind))
        raise ConfigurationError(f"{key}: expected {kinds}, got {value!r}")


def _check_ttl(value: Duration) -> timedelta:
    ttl = check_duration(value, "message_ttl")
    if not _SHORTEST_TTL <= ttl <= _LONGEST_TTL:
        raise ConfigurationError(f"message_ttl: {value!r} is not within 1ms to 4294967295ms")
    return ttl
