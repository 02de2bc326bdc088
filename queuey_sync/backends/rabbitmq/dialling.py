"""Where the broker is and how to say that it did not answer; shared by publishing and consuming.

Everything here keeps the password to itself: an address shows host, port and vhost, and an error
is told by what failed, never by what was sent. `publishing/link.py` and `consumer.py` dial.
"""

import logging
import re
import socket
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorStackTimeout
from pika.connection import Parameters
from pika.exceptions import (
    IncompatibleProtocolError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from queuey_sync.errors import ConfigurationError

_SCHEMES = ("amqp://", "amqps://")
_FORM = "amqp://user:password@host:port/vhost"
_REPLY = re.compile(r"\((\d{3})\) ['\"](.*)['\"]", re.DOTALL)


def connection_parameters(url: str, connection_name: str | None = None) -> Parameters:
    """Read an ``amqp://`` or ``amqps://`` URL, with the parameters that pika knows.

    Raises:
        ConfigurationError: The URL cannot be read, or asks for TLS without checking certificates.

    >>> address(connection_parameters("amqp://ada:secret@mq.example.org/shop?heartbeat=5"))
    'rabbitmq at mq.example.org:5672, vhost `shop`'
    """
    if not url.startswith(_SCHEMES):
        raise ConfigurationError(f"url: expected {_FORM} or amqps://…")
    try:
        parameters = pika.URLParameters(url)
    except Exception:  # noqa: BLE001 - pika raises whatever its parsing runs into
        # Its text may quote a part of the password, so it is not shown, not even as a cause.
        raise ConfigurationError(f"url: {_what_is_wrong_with(url)}") from None
    _refuse_unchecked_tls(parameters)
    if connection_name is not None:
        properties: dict[str, object] = dict(parameters.client_properties or {})
        parameters.client_properties = {**properties, "connection_name": connection_name}
    return parameters


def address(parameters: Parameters) -> str:
    """The broker as texts and logs name it."""
    return f"rabbitmq at {parameters.host}:{parameters.port}, vhost `{parameters.virtual_host}`"


def fault_text(error: BaseException | None, parameters: Parameters) -> str:
    """Why a connection failed or ended, in one line, from what pika reports."""
    leaf = _innermost(error)
    reply = _reply_text(leaf)
    match leaf:
        case ProbableAuthenticationError():
            return _login_fault(getattr(parameters.credentials, "username", ""), reply)
        case ProbableAccessDeniedError():
            refused = f"access to vhost `{parameters.virtual_host}` refused"
            return refused + (f" ({reply})" if reply else "")
        case IncompatibleProtocolError():
            return "it does not speak AMQP 0-9-1 there, or expects TLS"
        case ConnectionRefusedError():
            return "connection refused"
        case socket.gaierror():
            return f"host not found ({leaf.strerror})"
        case ssl.SSLError():
            return _tls_fault(leaf)
        case AMQPConnectorStackTimeout() | TimeoutError():
            return "no answer in time"
        case OSError():
            return leaf.strerror or type(leaf).__name__
        case None:
            return "connection lost"
    return reply or str(leaf) or type(leaf).__name__


def _login_fault(user: str, reply: str) -> str:
    if reply:
        return f"access refused for user `{user}` ({reply})"
    return f"the connection was cut while user `{user}` logged in"


def _tls_fault(fault: ssl.SSLError) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted ({fault.verify_message})"
    return f"TLS failed ({fault.reason or fault.strerror})"


def quieten_pika() -> None:
    """Keep pika's own records out of the log, unless the application set a level for them.

    pika logs a broker that is away with several errors and tracebacks for each attempt; the same
    fault reaches the user once, as this library's exception or record. To see pika's view, set a
    level on the logger ``pika``.
    """
    logger = logging.getLogger("pika")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


def _what_is_wrong_with(url: str) -> str:
    with suppress(Exception):
        parts = urlsplit(url)
        if parts.query and "@" not in parts.query:
            pika.URLParameters(parts._replace(query="").geturl())
            return "one of its parameters (after the ?) is unknown or has an impossible value"
    return (
        f"it cannot be read; expected {_FORM}, with characters other than letters and digits in"
        " user, password and vhost percent-encoded"
    )


def _refuse_unchecked_tls(parameters: Parameters) -> None:
    if parameters.ssl_options is None:
        return
    context = parameters.ssl_options.context
    if context.verify_mode != ssl.CERT_REQUIRED or not context.check_hostname:
        raise ConfigurationError(
            "url: its ssl_options switch the check of the broker's certificate off; name the"
            " authority with cafile instead"
        )


def _innermost(error: BaseException | None) -> BaseException | None:
    """The cause of a failed dial, which pika wraps in up to four layers."""
    while error is not None:
        layers = getattr(error, "exceptions", None) or (getattr(error, "exception", None),)
        inner = layers[-1]
        if inner is None and error.args and isinstance(error.args[0], BaseException):
            inner = error.args[0]
        if not isinstance(inner, BaseException):
            return error
        error = inner
    return error


def _reply_text(error: BaseException | None) -> str:
    """The broker's own words, when the error carries them."""
    text = getattr(error, "reply_text", None)
    if isinstance(text, str):
        return text
    found = _REPLY.search(str(error))
    return found.group(2) if found else ""
