"""Tests of the backend's options and of reading its URL."""

import ssl
import traceback
from datetime import timedelta
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker, StreamLostError

from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.backends.rabbitmq.dialling import address, connection_parameters, fault_text
from queuey_sync.backends.rabbitmq.options import Options
from queuey_sync.errors import ConfigurationError

PARAMETERS = connection_parameters("amqp://ada:hunter2@mq/shop")


def test_defaults() -> None:
    """The defaults are those of the documentation."""
    options = Options()
    assert (None, ".dead", True, ".deferred") == (
        options.connection_name,
        options.dead_suffix,
        options.declare_dead_letter_queues,
        options.deferred_suffix,
    )
    assert (1000, 1000, timedelta(seconds=10)) == (
        options.retry_step_ms,
        options.deferred_step_ms,
        options.publish_limit,
    )


@pytest.mark.parametrize(
    ("granularity", "step_ms"),
    [("5s", 5000), ("0s", 1), (timedelta(microseconds=1), 1), (0.25, 250), ("30d", 2_147_483_647)],
)
def test_steps(granularity: Any, step_ms: int) -> None:
    """A granularity is rounded up to milliseconds and kept between 1 and the longest hold."""
    options = Options(retry_granularity=granularity, deferred_granularity=granularity)
    assert (step_ms, step_ms) == (options.retry_step_ms, options.deferred_step_ms)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("publish_timeout", 0),
        ("publish_timeout", "-1s"),
        ("publish_timeout", None),
        ("retry_granularity", "1x"),
        ("deferred_granularity", -1),
        ("connection_name", 5),
        ("connection_name", " "),
        ("dead_suffix", 5),
        ("dead_suffix", None),
        ("dead_suffix", ".\n"),
        ("deferred_suffix", 5),
        ("declare_dead_letter_queues", 0),
        ("declare_dead_letter_queues", None),
        ("dead_suffix", ""),
        ("deferred_suffix", ""),
        ("dead_suffix", ".deferred"),
    ],
)
def test_refused(key: str, value: Any) -> None:
    """An impossible option is a configuration error that names it."""
    with pytest.raises(ConfigurationError, match=key):
        Options(**{key: value})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://mq", "rabbitmq at mq:5672, vhost `/`"),
        ("amqps://ada:hunter2@mq:1/shop", "rabbitmq at mq:1, vhost `shop`"),
        ("amqps://mq/%2F", "rabbitmq at mq:5671, vhost `/`"),
    ],
)
def test_address(url: str, shown: str) -> None:
    """A broker is shown by host, port and vhost."""
    assert shown == address(connection_parameters(url))


@pytest.mark.parametrize(
    "url",
    [
        "amqp://ada:hunter2@mq:port/",
        "amqp://ada:hunter2/3@mq",
        "amqp://ada:hunter2?x=hunter2@mq",
        "amqp://ada@mq",
        "http://ada:hunter2@mq",
        "amqp://ada:hunter2@mq?heartbeat=hunter2",
        "amqp://ada:hunter2@mq?hunter2=1",
        "amqp://ada:hunter2@mq:99999",
        "amqp://ada:[hunter2@mq",
        "",
    ],
)
def test_unreadable_urls_keep_their_password(url: str) -> None:
    """A URL that cannot be read is an error without any part of the password, causes included."""
    with pytest.raises(ConfigurationError, match="url: ") as caught:
        connection_parameters(url)
    assert "hunter" not in "".join(traceback.format_exception(caught.value))


def test_pika_parameters_are_honoured() -> None:
    """What pika reads from a URL's query stays in force."""
    parameters = connection_parameters("amqp://mq?heartbeat=5&blocked_connection_timeout=7")
    assert (5, 7) == (parameters.heartbeat, parameters.blocked_connection_timeout)


def test_tls_checks_certificates() -> None:
    """``amqps`` means TLS with the platform's authorities, certificates and host names checked."""
    options = connection_parameters("amqps://mq").ssl_options
    assert options is not None
    assert options.context.verify_mode == ssl.CERT_REQUIRED
    assert options.context.check_hostname


@pytest.mark.filterwarnings("ignore:ssl.PROTOCOL_TLS is deprecated:DeprecationWarning")
def test_tls_without_checks_is_refused() -> None:
    """A URL cannot switch the check of certificates off."""
    unchecked = f"amqps://mq?ssl_options={{'protocol':{int(ssl.PROTOCOL_TLS)},'capath':'/'}}"
    with pytest.raises(ConfigurationError, match="certificate"):
        connection_parameters(unchecked)


def test_connection_name() -> None:
    """A connection name is a client property, beside those of the URL; unset, nothing is sent."""
    url = "amqp://mq?client_properties={'team':'a'}"
    properties = connection_parameters(url, "orders-worker").client_properties
    assert {"team": "a", "connection_name": "orders-worker"} == properties
    assert connection_parameters("amqp://mq").client_properties is None


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, "connection lost"),
        (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
        (OSError(113, "No route to host"), "No route to host"),
        (ChannelClosedByBroker(406, "PRECONDITION_FAILED - why"), "PRECONDITION_FAILED - why"),
        (StreamLostError("Transport indicated EOF"), "Transport indicated EOF"),
    ],
)
def test_fault_text(error: Exception | None, text: str) -> None:
    """A fault is told in one line."""
    assert text == fault_text(error, PARAMETERS)


@pytest.mark.parametrize(
    ("retry", "deferred", "days"), [("1d", "1d", 24), ("9d", "10d", 18), ("10d", "9d", 18)]
)
def test_the_longest_delay_is_one_that_every_hold_queue_can_keep(
    retry: str, deferred: str, days: int
) -> None:
    """Rounded up to either granularity, it still fits."""
    backend = RabbitMQBackend("amqp://mq", retry_granularity=retry, deferred_granularity=deferred)
    assert timedelta(days=days) == backend.longest_delay
