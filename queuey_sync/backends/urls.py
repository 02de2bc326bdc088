"""From a URL to a backend. A backend is imported when its scheme is asked for, not before."""

from typing import Any
from urllib.parse import urlsplit

from queuey_sync.backends.base import Backend
from queuey_sync.errors import ConfigurationError


def connect(url: str, **options: Any) -> Backend:  # noqa: ANN401 - of whichever backend
    """The backend that a URL names. Nothing is dialled until something is published or consumed.

    Args:
        url: ``amqp://user:password@host:port/vhost`` or ``amqps://…`` for RabbitMQ, with pika's own
            parameters after the ``?``; or ``memory:`` for a backend inside this process.
        options: The options of that backend; see `RabbitMQBackend`.

    Raises:
        ConfigurationError: The scheme is unknown, the URL cannot be read, or an option is wrong.

    >>> connect("memory:").is_closed()
    False
    """
    try:
        scheme = urlsplit(url).scheme
    except (ValueError, AttributeError):  # its text may hold the password, so it is not shown
        raise ConfigurationError("url: it cannot be read as a URL") from None
    try:
        match scheme:
            case "amqp" | "amqps":
                from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend  # noqa: PLC0415

                return RabbitMQBackend(url, **options)
            case "memory":
                from queuey_sync.backends.memory import MemoryBackend  # noqa: PLC0415

                return MemoryBackend(**options)
    except TypeError as error:
        raise ConfigurationError(f"options of {scheme}: {str(error).partition('() ')[2]}") from None
    raise ConfigurationError(
        f"url: unknown scheme {scheme!r}; expected amqp://, amqps:// or memory:"
    )
