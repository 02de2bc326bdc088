"""From a URL to a backend. A backend is imported when its scheme is asked for, not before."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from queuey_sync.backends.base import Backend
from queuey_sync.errors import ConfigurationError

_EXPECTED = "expected amqp://, amqps://, sqlite:/// or memory:"


def connect(
    url: str | Sequence[str],
    **options: Any,  # noqa: ANN401 - of whichever backend
) -> Backend:
    """The backend that a URL names. Nothing is dialled until something is published or consumed.

    Args:
        url: ``amqp://user:password@host:port/vhost`` or ``amqps://…`` for RabbitMQ, with pika's own
            parameters after the ``?``, or several of these for the nodes of one cluster;
            ``sqlite:///path`` for a file, with options after the ``?``; or ``memory:`` for a
            backend inside this process.
        options: The options of that backend; see `RabbitMQBackend` and `SQLiteBackend`.

    Raises:
        ConfigurationError: The scheme is unknown, the URL cannot be read, or an option is wrong.

    >>> connect("memory:").is_closed()
    False
    """
    scheme = _scheme(url)
    try:
        match scheme:
            case "amqp" | "amqps":
                from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend  # noqa: PLC0415

                return RabbitMQBackend(url, **options)
            case "sqlite" if isinstance(url, str):
                from queuey_sync.backends.sqlite.backend import SQLiteBackend  # noqa: PLC0415

                return SQLiteBackend(url, **options)
            case "memory" if isinstance(url, str):
                from queuey_sync.backends.memory.backend import MemoryBackend  # noqa: PLC0415

                return MemoryBackend(**options)
    except TypeError as error:
        raise ConfigurationError(f"options of {scheme}: {str(error).partition('() ')[2]}") from None
    if scheme in {"sqlite", "memory"}:
        raise ConfigurationError("url: only RabbitMQ takes several URLs")
    raise ConfigurationError(f"url: unknown scheme {scheme!r}; {_EXPECTED}")


def _scheme(url: object) -> str:
    first = url[0] if isinstance(url, list | tuple) and url else url
    if isinstance(first, str):
        with suppress(ValueError):
            return urlsplit(first.strip()).scheme
    # It may hold a password, so it is not shown, not even by a cause.
    raise ConfigurationError(f"url: it cannot be read as a URL; {_EXPECTED}")
