"""The knobs of the RabbitMQ backend, with their defaults and their checks.

Knows nothing of connections. `topology.py` turns the suffixes into queue names.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from queuey_sync.durations import Duration, ceil_ms, parse_duration
from queuey_sync.errors import ConfigurationError
from queuey_sync.queues import DEAD_SUFFIX, DEFERRED_SUFFIX, LONGEST_TTL_MS
from queuey_sync.retry import check_boolean, check_duration, check_text


class OptionKeywords(TypedDict, total=False):
    """The fields of `Options`, as the keywords of `RabbitMQBackend` and ``connect``."""

    connection_name: str | None
    dead_suffix: str
    declare_dead_letter_queues: bool
    deferred_suffix: str
    retry_granularity: Duration
    deferred_granularity: Duration
    publish_timeout: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How this backend names, waits and publishes.

    Args:
        connection_name: Shown by the broker for each connection; nothing is sent when None.
        dead_suffix: The dead-letter queue of ``q`` is ``q`` and this.
        declare_dead_letter_queues: Off, nothing is placed on dead-letter queues: such jobs are
            rejected without requeue.
        deferred_suffix: The hold queues of ``q`` are ``q``, this, a dot and their milliseconds.
        retry_granularity: Delays of retries and delayed jobs are rounded up to a multiple of this,
            which bounds the number of hold queues; 0 means the finest, 1 ms.
        deferred_granularity: The same for deferrals.
        publish_timeout: A publish or a declaration that gets no answer for so long is an error.

    Raises:
        ConfigurationError: An option has a value that cannot work; the text names it.

    >>> Options(retry_granularity="1500ms").retry_step_ms
    1500
    >>> Options(publish_timeout=0)
    Traceback (most recent call last):
    queuey_sync.errors.ConfigurationError: publish_timeout: 0 must be longer than zero
    """

    connection_name: str | None = None
    dead_suffix: str = DEAD_SUFFIX
    declare_dead_letter_queues: bool = True
    deferred_suffix: str = DEFERRED_SUFFIX
    retry_granularity: Duration = "1s"
    deferred_granularity: Duration = "1s"
    publish_timeout: Duration = "10s"

    def __post_init__(self) -> None:
        for key in ("retry_granularity", "deferred_granularity", "publish_timeout"):
            duration = check_duration(getattr(self, key), key, zero=key != "publish_timeout")
            object.__setattr__(self, key, duration)
        if self.connection_name is not None:
            check_text(self.connection_name, "connection_name")
        check_boolean(self.declare_dead_letter_queues, "declare_dead_letter_queues")
        for key in ("dead_suffix", "deferred_suffix"):
            check_text(getattr(self, key), key)
        if self.dead_suffix == self.deferred_suffix:
            raise ConfigurationError("dead_suffix: must differ from deferred_suffix")

    @property
    def retry_step_ms(self) -> int:
        """What delays of retries are a multiple of."""
        return _step_ms(self.retry_granularity)

    @property
    def deferred_step_ms(self) -> int:
        """What delays of deferrals are a multiple of."""
        return _step_ms(self.deferred_granularity)

    @property
    def publish_limit(self) -> timedelta:
        """`publish_timeout`, parsed."""
        return parse_duration(self.publish_timeout)


def _step_ms(granularity: Duration) -> int:
    return min(max(ceil_ms(parse_duration(granularity)), 1), LONGEST_TTL_MS)
