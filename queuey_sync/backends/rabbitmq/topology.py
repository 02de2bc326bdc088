"""What RabbitMQ holds: the names and arguments of every queue. Pure.

A queue ``q`` comes with ``q.dead``, for jobs given up on, and with hold queues ``q.deferred.<ms>``,
one for each rounded delay: a message in one expires after that time and the broker moves it back to
``q``. Nothing consumes a hold queue. Its arguments follow from its name alone, so that any two
processes agree on them. `options.py` explains the knobs; `publishing/` declares.

A quorum queue has quorum queues for its dead letters and holds. What their arguments are for is
told where they stand; each was found necessary on a real broker.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from queuey_sync.backends.rabbitmq.options import Options
from queuey_sync.durations import ceil_ms, format_duration
from queuey_sync.errors import BackendError
from queuey_sync.queues import HOLD_SUFFIXES, LONGEST_NAME, LONGEST_TTL_MS, Kind, QueueConfig

_LONGEST_SHOWN = 100
"""Characters of a refused name that an error repeats."""
_LONGEST_DELAY = timedelta(milliseconds=LONGEST_TTL_MS)
_UINT32_MAX = 4_294_967_295

_RUNGS_MS = (
    *(100, 200, 500),
    *(seconds * 1_000 for seconds in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(minutes * 60_000 for minutes in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(hours * 3_600_000 for hours in (1, 2, 3, 6, 12, 18)),
    *(days * 86_400_000 for days in (1, 2, 3, 5, 7, 10, 14, 21)),
)
"""How long quorum hold queues wait, but for the longest; they stay, so they must be few."""

_NO_LOSS: Mapping[str, object] = {
    "x-dead-letter-exchange": "",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",  # the strategy asks for it
}
"""A message that is moved on leaves a quorum queue only when the next queue has confirmed it."""
_GIVE_BACKS = 1_000
"""Far more than restarts bring about; what kills its worker each time must not do so for ever."""
_UNLIMITED = 2**31 - 1
"""For `x-delivery-limit`: since 4.0 one of 20 is the default, which deletes without a trace, and
3.x does not know the value -1."""


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """One queue to declare; never exclusive, never deleted automatically."""

    name: str
    durable: bool = True
    arguments: Mapping[str, object] = field(default_factory=dict)
    passive: bool = False
    """Whether it is only looked for, and must exist."""

    @property
    def wanted(self) -> str:
        """What an error tells of it beside the broker's words, which say what exists.

        >>> QueueDeclaration("shop.mail", arguments={"x-max-priority": 10}).wanted
        'wanted: durable, x-max-priority=10'
        """
        if self.passive:
            return "it is not declared here: see the option `declare`"
        arguments = (f"{key}={value}" for key, value in self.arguments.items())
        return "wanted: " + ", ".join(["durable" if self.durable else "not durable", *arguments])

    @property
    def safe_seconds(self) -> float:
        """For how long after its declaration a message that is put into it is sure to leave it."""
        expires_ms = self.arguments.get("x-expires")
        return expires_ms / 2_000 if isinstance(expires_ms, int) else math.inf


class Topology:
    """Names and arguments, as the options want them.

    >>> topology = Topology(Options())
    >>> topology.dead_queue("shop.orders"), topology.hold_queue("shop.orders", 30_000)
    ('shop.orders.dead', 'shop.orders.deferred.30000')
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    def dead_queue(self, queue: str) -> str:
        """The queue for the jobs of `queue` that were given up on."""
        return queue + self._options.dead_suffix

    def hold_queue(self, queue: str, ttl_ms: int, kind: Kind = "classic") -> str:
        """The queue where jobs of `queue` wait for `ttl_ms`."""
        return f"{queue}{self._options.deferred_suffix}{HOLD_SUFFIXES[kind]}.{ttl_ms}"

    def queue_behind(self, name: str) -> str | None:
        """The queue whose hold queue has this name; None if it is the name of no hold queue.

        >>> topology = Topology(Options())
        >>> topology.queue_behind("shop.orders.deferred.30000"), topology.queue_behind("shop.dead")
        ('shop.orders', None)
        """
        rest, _, ttl_ms = name.rpartition(".")
        rest = rest.removesuffix(HOLD_SUFFIXES["quorum"])
        queue = rest.removesuffix(self._options.deferred_suffix)
        is_hold = queue != rest and ttl_ms.isascii() and ttl_ms.isdigit()
        return queue if is_hold else None

    def check(self, config: QueueConfig) -> None:
        """Refuse a name that is too long, before anything is created.

        Raises:
            BackendError: The name, or one that is built from it, cannot be sent.
        """
        queue = config.full_name
        check_name(queue)
        if not _fits(self.hold_queue(queue, LONGEST_TTL_MS, config.kind)):
            raise BackendError(f"the queue name `{queue}` leaves no room for its hold queues")
        if self._options.declare_dead_letter_queues and not _fits(self.dead_queue(queue)):
            raise BackendError(f"the queue name `{queue}` leaves no room for its dead-letter queue")

    def declarations(self, config: QueueConfig) -> list[QueueDeclaration]:
        """The queue itself and, unless switched off, its dead-letter queue, in this order."""
        queue, dead_queue = config.full_name, self.dead_queue(config.full_name)
        with_dead, passive = self._options.declare_dead_letter_queues, not self._options.declare
        arguments = _arguments(config)
        if config.kind == "quorum":
            arguments |= _limit_of(config, dead_queue if with_dead else None)
        queues = [QueueDeclaration(queue, config.durable, arguments, passive)]
        if with_dead:
            limit = {"x-delivery-limit": _UNLIMITED} if config.kind == "quorum" else {}
            kept = _kind_of(config) | limit
            queues.append(QueueDeclaration(dead_queue, arguments=kept, passive=passive))
        return queues

    def hold(self, config: QueueConfig, ttl_ms: int) -> QueueDeclaration:
        """The hold queue of `config` for `ttl_ms`, or for the next longer time of its kind.

        A classic one outlives its last declaration by twice its time, so a message that was
        published right after a declaration leaves before the queue goes. For a quorum queue a
        declaration is no use, so it would go with what it holds: it has to stay.
        """
        if config.kind == "quorum":
            ttl_ms = next((rung for rung in _RUNGS_MS if rung >= ttl_ms), LONGEST_TTL_MS)
            lasting = {**_kind_of(config), **_NO_LOSS}
        else:
            lasting = {"x-dead-letter-exchange": "", "x-expires": min(2 * ttl_ms, _UINT32_MAX)}
        name = self.hold_queue(config.full_name, ttl_ms, config.kind)
        back = {"x-message-ttl": ttl_ms, "x-dead-letter-routing-key": config.full_name}
        return QueueDeclaration(name, config.durable, back | lasting)


def hold_ttl_ms(delay: timedelta, step_ms: int) -> int:
    """A delay in whole steps, rounded up: at least one step, and never early.

    Raises:
        BackendError: No hold queue can wait so long.

    >>> hold_ttl_ms(timedelta(seconds=29.2), 1000), hold_ttl_ms(timedelta(0), 1000)
    (30000, 1000)
    """
    if delay <= _LONGEST_DELAY:
        ttl_ms = max(-(-ceil_ms(delay) // step_ms), 1) * step_ms
        if ttl_ms <= LONGEST_TTL_MS:
            return ttl_ms
    raise BackendError(
        f"a delay of {format_duration(delay)} is longer than a hold queue can wait"
        f" ({format_duration(_LONGEST_DELAY)}): refused rather than released early"
    )


def check_name(name: str) -> None:
    """Refuse a queue name that AMQP cannot encode.

    Raises:
        BackendError: It is longer than 255 bytes, or is no valid text.
    """
    if not _fits(name):
        shown = name[:_LONGEST_SHOWN].encode(errors="replace").decode()
        raise BackendError(
            f"invalid AMQP name `{shown}`: a queue name is UTF-8 text of at most"
            f" {LONGEST_NAME} bytes"
        )


def _fits(name: str) -> bool:
    try:
        return len(name.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


def _arguments(config: QueueConfig) -> dict[str, object]:
    arguments = _kind_of(config)
    if config.message_ttl is not None:
        arguments["x-message-ttl"] = min(max(ceil_ms(config.message_ttl), 1), _UINT32_MAX)
    if config.top_level and config.kind == "classic":
        arguments["x-max-priority"] = config.top_level
    return arguments


def _kind_of(config: QueueConfig) -> dict[str, object]:
    # A classic queue says nothing: queues that are there already were declared without it.
    return {} if config.kind == "classic" else {"x-queue-type": config.kind}


def _limit_of(config: QueueConfig, dead_queue: str | None) -> dict[str, object]:
    """How often a job may be given back before the broker calls it dead, if that keeps it.

    The broker moves what is too old to the same place, so a queue with a time to live has no limit.
    """
    if dead_queue is None or config.message_ttl is not None:
        return {"x-delivery-limit": _UNLIMITED}
    return {
        "x-delivery-limit": _GIVE_BACKS,
        "x-dead-letter-routing-key": dead_queue,
        **_NO_LOSS,
    }
