"""Tests of the backend's options and of reading its URL."""

import ssl
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker, StreamLostError

from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.backends.rabbitmq.dialling import addresses, brokers_of, fault_text
from queuey_sync.backends.rabbitmq.options import Options
from queuey_sync.backends.rabbitmq.tls import TLS
from queuey_sync.errors import ConfigurationError

(PARAMETERS,) = brokers_of("amqp://ada:hunter2@mq/shop")


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
        ("declare", 0),
        ("cafile", 5),
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
        ("amqp://a,amqp://b:1", "rabbitmq at a:5672 or b:1, vhost `/`"),
        (" amqp://ada:x,y@a/v ,\n amqp://b/v ", "rabbitmq at a:5672 or b:5672, vhost `v`"),
        (["amqp://a", "amqp://b"], "rabbitmq at a:5672 or b:5672, vhost `/`"),
    ],
)
def test_address(url: str | list[str], shown: str) -> None:
    """A broker is shown by host, port and vhost."""
    assert shown == addresses(brokers_of(url))


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
        "amqp://mq,amqp://ada:hunter2@mq:port/",
        "amqps://ada:hunter2@a,amqp://ada:hunter2@b",
        "amqp://ada:hunter2@a/one,amqp://ada:hunter2@b/two",
        "amqp://ada:hunter2@mq?cafile=ca.pem",
        "amqps://ada:hunter2@mq?cafile=",
        "",
    ],
)
def test_unreadable_urls_keep_their_password(url: str) -> None:
    """A URL that cannot be read is an error without any part of the password, causes included."""
    with pytest.raises(ConfigurationError, match="url: ") as caught:
        brokers_of(url)
    assert "hunter" not in "".join(traceback.format_exception(caught.value))


def test_pika_parameters_are_honoured() -> None:
    """What pika reads from a URL's query stays in force."""
    (parameters,) = brokers_of("amqp://mq?heartbeat=5&blocked_connection_timeout=7")
    assert (5, 7) == (parameters.heartbeat, parameters.blocked_connection_timeout)


def test_tls_checks_certificates() -> None:
    """``amqps`` means TLS with the platform's authorities, certificates and host names checked."""
    options = brokers_of("amqps://mq")[0].ssl_options
    assert options is not None
    assert options.context.verify_mode == ssl.CERT_REQUIRED
    assert options.context.check_hostname


def test_tls_without_checks_is_refused() -> None:
    """A URL cannot bring TLS options that would switch the check of certificates off."""
    with pytest.raises(ConfigurationError, match="url: ssl_options: say it with cafile"):
        brokers_of("amqps://mq?ssl_options={'verify_mode':0}")


def test_the_name_to_check_is_that_of_the_url_before_that_of_the_keyword() -> None:
    """A keyword is for all URLs that say nothing of their own, and is no parameter of pika."""
    tls = TLS(server_name="mq.example.org")
    one, two = brokers_of("amqps://a?server_name=a.example.org&heartbeat=5,amqps://b", tls=tls)
    assert one.ssl_options is not None
    assert two.ssl_options is not None
    assert ("a.example.org", 5) == (one.ssl_options.server_hostname, one.heartbeat)
    assert "mq.example.org" == two.ssl_options.server_hostname


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("amqps://mq?cafile=%2Fno%2Fca.pem", {}, "url: cafile: /no/ca.pem: No such file"),
        ("amqps://mq", {"cafile": "/no/ca.pem"}, "^cafile: /no/ca.pem: No such file"),
        ("amqps://mq?cafile={junk}", {}, "url: cafile: .*junk: not usable PEM"),
        ("amqps://mq?certfile=/no/cert", {}, "url: certfile: /no/cert: No such file"),
        ("amqps://mq?certfile={junk}&keyfile=/no/key", {}, "url: keyfile: /no/key: No such file"),
        ("amqps://mq?certfile={junk}", {}, "url: certfile: .*junk: not usable PEM"),
        ("amqps://mq?keyfile={junk}", {}, "url: keyfile: it needs a certfile"),
        ("amqp://mq", {"cafile": "/no/ca.pem"}, "^cafile: only amqps:// has TLS"),
    ],
)
def test_unusable_tls_options(url: str, options: dict[str, str], text: str, tmp_path: Path) -> None:
    """A file that is missing or no certificate is named with its option, and nothing is dialled."""
    junk = tmp_path / "junk"
    junk.write_text("junk\n")
    with pytest.raises(ConfigurationError, match=text):
        RabbitMQBackend(url.format(junk=junk), **options)  # type: ignore[arg-type]


def test_connection_name() -> None:
    """A connection name is a client property, beside those of the URL; unset, nothing is sent."""
    url = "amqp://mq?client_properties={'team':'a'}"
    properties = brokers_of(url, connection_name="orders-worker")[0].client_properties
    assert {"team": "a", "connection_name": "orders-worker"} == properties
    assert brokers_of("amqp://mq")[0].client_properties is None


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
