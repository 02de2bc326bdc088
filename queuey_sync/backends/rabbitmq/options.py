"""The knobs of the RabbitMQ backend, with their defaults and their checks.

Knows nothing of connections. `topology.py` turns the suffixes into queue names.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from queuey_sync.backends.rabbitmq.tls import TLS
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
    declare: bool
    cafile: str | None
    certfile: str | None
    keyfile: str | None
    server_name: str | None


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
        declare: Off, queues and their dead-letter queues are only looked for, for a user who may
            not declare them. Hold queues come and go, so they are declared all the same.
        cafile: For ``amqps://``: whom to trust, in PEM; by default whom the system trusts.
        certfile: A certificate for the broker to check, in PEM.
        keyfile: Its key, if that is not in `certfile`.
        server_name: The name that the broker's certificate must have; by default the URL's host.

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
    declare: bool = True
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        for key in ("retry_granularity", "deferred_granularity", "publish_timeout"):
            duration = check_duration(getattr(self, key), key, zero=key != "publish_timeout")
            object.__setattr__(self, key, duration)
        for key in ("connection_name", "cafile", "certfile", "keyfile", "server_name"):
            if getattr(self, key) is not None:
                check_text(getattr(self, key), key)
        for key in ("declare_dead_letter_queues", "declare"):
            check_boolean(getattr(self, key), key)
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
    def tls(self) -> TLS:
        """What was said of TLS."""
        return TLS(
            cafile=self.cafile,
            certfile=self.certfile,
            keyfile=self.keyfile,
            server_name=self.server_name,
        )

    @property
    def publish_limit(self) -> timedelta:
        """`publish_timeout`, parsed."""
        return parse_duration(self.publish_timeout)


def _step_ms(granularity: Duration) -> int:
    return min(max(ceil_ms(parse_duration(granularity)), 1), LONGEST_TTL_MS)
