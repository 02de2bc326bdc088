"""The knobs of the RabbitMQ backend, with their defaults and their checks.

Knows nothing of connections. `topology.py` turns the suffixes into queue names.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from queuey_sync.durations import Duration, ceil_ms, parse_duration
from queuey_sync.errors import ConfigurationError

LONGEST_TTL_MS = 2_147_483_647
"""The longest time that a hold queue can keep a message: about 24.8 days."""


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
            which bounds the number of hold queues.
        deferred_granularity: The same for deferrals.
        publish_timeout: A publish or a declaration that gets no answer for so long is an error.

    Raises:
        ConfigurationError: An option has a value that cannot work; the text names it.

    >>> Options(retry_granularity="1500ms").retry_step_ms
    1500
    >>> Options(publish_timeout=0)
    Traceback (most recent call last):
    queuey_sync.errors.ConfigurationError: publish_timeout: must be longer than zero
    """

    connection_name: str | None = None
    dead_suffix: str = ".dead"
    declare_dead_letter_queues: bool = True
    deferred_suffix: str = ".deferred"
    retry_granularity: Duration = "1s"
    deferred_granularity: Duration = "1s"
    publish_timeout: Duration = "10s"

    def __post_init__(self) -> None:
        for key in ("retry_granularity", "deferred_granularity", "publish_timeout"):
            try:
                duration = parse_duration(getattr(self, key), key)
            except (TypeError, ValueError) as error:
                raise ConfigurationError(str(error)) from None
            if key == "publish_timeout" and not duration:
                raise ConfigurationError(f"{key}: must be longer than zero")
            object.__setattr__(self, key, duration)
        for key in ("dead_suffix", "deferred_suffix"):
            if not getattr(self, key):
                raise ConfigurationError(f"{key}: must not be empty")
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
