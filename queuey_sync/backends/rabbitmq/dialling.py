"""Where the broker is and how to say that it did not answer; shared by publishing and consuming.

Everything here keeps the password to itself: an address shows host, port and vhost, and an error
is told by what failed, never by what was sent. `publishing/publisher.py` dials for itself, all
others with `dial`. Files and certificates are in `tls.py`.
"""

import logging
import re
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorStackTimeout
from pika.connection import Parameters
from pika.exceptions import (
    AMQPError,
    IncompatibleProtocolError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from queuey_sync.backends.rabbitmq.tls import TLS, take_from
from queuey_sync.errors import ConfigurationError

Brokers = Sequence[Parameters]
"""The nodes of one cluster, at least one; each dial tries them in this order, once each."""

_SCHEMES = ("amqp://", "amqps://")
_FORM = "amqp://user:password@host:port/vhost"
_BETWEEN = re.compile(r"[,\s]+(?=amqps?://)")
"""What separates URLs; a comma elsewhere belongs to one of them."""
_REPLY = re.compile(r"\((\d{3})\) ['\"](.*)['\"]", re.DOTALL)


class DialFailed(Exception):
    """No connection came about; the text says where and why."""


def brokers_of(
    url: str | Sequence[str], *, connection_name: str | None = None, tls: TLS | None = None
) -> Brokers:
    """Read ``amqp://`` or ``amqps://`` URLs, with the parameters that pika knows and those of TLS.

    Args:
        url: One URL, several of them in a text, separated by commas or spaces, or a sequence.
        connection_name: Shown by the broker.
        tls: For URLs that say nothing of their own.

    Raises:
        ConfigurationError: A URL or a file cannot be read, or the URLs are not of one cluster.

    >>> cluster = brokers_of("amqp://ada:secret@a.example.org/shop, amqp://ada:secret@b:5673/shop")
    >>> addresses(cluster)
    'rabbitmq at a.example.org:5672 or b:5673, vhost `shop`'
    """
    urls = _BETWEEN.split(url.strip()) if isinstance(url, str) else list(url)
    if not urls:
        raise ConfigurationError("url: an empty list names no broker")
    brokers = [_parameters(one, connection_name, tls or TLS()) for one in urls]
    kinds = {(one.ssl_options is None, one.virtual_host) for one in brokers}
    if len(kinds) > 1:
        raise ConfigurationError(
            "url: several URLs name the nodes of one cluster, so all have one vhost, and either all"
            " or none begin with amqps://"
        )
    return brokers


def _parameters(given: object, connection_name: str | None, defaults: TLS) -> Parameters:
    if not isinstance(given, str) or not given.startswith(_SCHEMES):
        raise ConfigurationError(f"url: expected {_FORM} or amqps://…")
    url, tls = take_from(given)
    try:
        parameters = pika.URLParameters(url)
    except Exception:  # noqa: BLE001 - pika raises whatever its parsing runs into
        # Its text may quote a part of the password, so it is not shown, not even as a cause.
        raise ConfigurationError(f"url: {_what_is_wrong_with(url)}") from None
    _set_up_tls(parameters, tls, defaults)
    if connection_name is not None:
        properties: dict[str, object] = dict(parameters.client_properties or {})
        parameters.client_properties = {**properties, "connection_name": connection_name}
    return parameters


def _set_up_tls(parameters: Parameters, tls: TLS, defaults: TLS) -> None:
    own = tls.given()
    merged = {**defaults.given(), **own}
    if parameters.ssl_options is not None:
        try:
            parameters.ssl_options = TLS(**merged).ssl_options()
        except ConfigurationError as error:
            in_url = str(error).partition(":")[0] in own
            raise ConfigurationError(f"url: {error}" if in_url else str(error)) from None
    elif merged:
        key = next(iter(merged))
        where = f"url: {key}" if key in own else key
        raise ConfigurationError(f"{where}: only amqps:// has TLS, and the URL is amqp://")


def dial(brokers: Brokers) -> tuple[pika.BlockingConnection, Parameters]:
    """Connect to the first broker that answers; returns which one that was, too.

    Raises:
        DialFailed: None did; the text has the reason of each.
    """
    quieten_pika()
    faults: list[str] = []
    for parameters in brokers:
        try:
            return pika.BlockingConnection(parameters), parameters
        except (AMQPError, OSError) as fault:
            faults.append(f"{address(parameters)}: {fault_text(fault, parameters)}")
    raise DialFailed("; ".join(faults))


def addresses(brokers: Brokers) -> str:
    """All brokers as texts and logs name them."""
    hosts = " or ".join(f"{one.host}:{one.port}" for one in brokers)
    return f"rabbitmq at {hosts}, vhost `{brokers[0].virtual_host}`"


def address(parameters: Parameters) -> str:
    """The broker as texts and logs name it."""
    return addresses([parameters])


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
            lacks = "TLS" if parameters.ssl_options is None else "another client certificate"
            return f"it does not speak AMQP 0-9-1 there, or expects {lacks}"
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
        return f"its certificate was not accepted ({fault.verify_message.rstrip('.')})"
    if fault.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS there"
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
