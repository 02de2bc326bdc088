"""Tests of the app: one backend, made when it is first needed, and the URL that it goes to."""

from typing import Any

import pytest

from queuey_sync import ConfigurationError, Job, MemoryBackend, QueueSet, Queuey, connect, queue
from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend


class Shop(QueueSet, prefix="shop"):
    """A set of one queue."""

    MAIL = queue()


class Notify(Job[Shop], queue=Shop.MAIL, name="shop.Notify"):
    """A job of it."""

    seq: int


def test_an_app_opens_nothing_until_it_is_used() -> None:
    """Making one needs no URL; using one without says what to set."""
    app = Queuey(Shop)
    with pytest.raises(ConfigurationError, match="QUEUEY_URL=amqp://"):
        app.enqueue(Notify(1))


def test_the_url_of_the_environment_is_read_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """QUEUEY_URL counts at the first use, and not at the import of the app."""
    app = Queuey(Shop)
    monkeypatch.setenv("QUEUEY_URL", "memory:")
    app.enqueue(Notify(1))
    assert isinstance(app.backend(), MemoryBackend)


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((3,), {}, "^queues: expected a queue set"),
        ((Shop.MAIL,), {"url": "memory:"}, "^queues: expected a queue set"),
        ((Shop,), {"url": 3}, "^url: "),
        ((Shop,), {"url": ""}, "^url: "),
        ((Shop,), {"url": "http://x"}, "^url: "),
        ((Shop,), {"url": "amqp://mq:port"}, "^url: "),
        ((Shop,), {"url": "memory:", "dead_suffix": ".x"}, "'dead_suffix'"),
        ((Shop,), {"url": "memory:", "clock": 3}, "^clock: "),
        ((Shop,), {"url": "amqp://mq", "prefetch": 3}, "'prefetch'"),
        ((Shop,), {"url": "amqp://mq", "publish_timeout": 0}, "^publish_timeout: "),
    ],
)
def test_what_is_wrong_is_refused_when_the_app_is_made(
    arguments: Any, options: Any, text: str
) -> None:
    """A wrong queue set, URL or option does not wait for the first job."""
    with pytest.raises(ConfigurationError, match=text):
        Queuey(*arguments, **options)


def test_an_app_of_its_own_url_dials_nothing() -> None:
    """Making one checks the URL, and needs no broker."""
    app = Queuey(Shop, url="amqp://127.0.0.1:1", retry_granularity="5s")
    backend = app.backend()
    assert isinstance(backend, RabbitMQBackend)
    assert (5000, False) == (backend.options.retry_step_ms, backend.is_connected)
    app.close()


def test_everything_of_an_app_shares_one_backend() -> None:
    """Producer and worker meet on it, and every way to enqueue goes there."""
    app = Queuey(Shop, url="memory:")
    app.enqueue(Notify(1))
    app.enqueue_many([Notify(2)])
    app.enqueue_after(Notify(3), "1h")
    app.defer(Notify(4), "1h")
    backend = app.backend()
    assert isinstance(backend, MemoryBackend)
    assert (2, 1) == (backend.pending("shop.mail"), backend.deferred("shop.mail"))
    assert app.producer() is app.producer()
    assert backend is app.producer().backend
    app.close()
    assert backend.is_closed()
    assert app.backend() is not backend


def test_another_url_takes_the_place_of_a_backend_in_use() -> None:
    """`connect_to` closes what the app had, so that nothing goes to two places."""
    app = Queuey(Shop, url="memory:")
    before = app.backend()
    app.connect_to("memory:")
    assert before.is_closed()
    assert app.backend() is not before


@pytest.mark.parametrize("url", ["http://x", "shop", "", "amqp//x"])
def test_unknown_urls_are_refused(url: str) -> None:
    """The text names what would have been right."""
    with pytest.raises(ConfigurationError, match=r"expected amqp://, amqps://, .* or memory:"):
        connect(url)


def test_unknown_options_are_refused() -> None:
    """An option that the backend of the URL does not have is named."""
    with pytest.raises(ConfigurationError, match=r"options of memory: .*'dead_suffix'"):
        connect("memory:", dead_suffix=".x")
    with pytest.raises(ConfigurationError, match=r"options of amqp: .*'prefetch'"):
        connect("amqp://localhost", prefetch=3)


@pytest.mark.parametrize("scheme", ["sqlite:///", "memory:"])
def test_several_urls_are_for_rabbitmq_only(scheme: str) -> None:
    """Anywhere else there is nothing to go over to."""
    with pytest.raises(ConfigurationError, match="url: only RabbitMQ takes several URLs"):
        connect([scheme, "amqp://mq"])


@pytest.mark.parametrize("url", ["amqp://u:secret@[::1/", 3, None, b"amqp://u:secret@mq", [3], []])
def test_what_is_no_url_at_all_is_refused_without_showing_it(url: Any) -> None:
    """The text keeps what may hold a password to itself."""
    with pytest.raises(ConfigurationError, match="cannot be read") as caught:
        connect(url)
    assert "secret" not in str(caught.value)
