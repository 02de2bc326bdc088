"""Users of the broker who may not do everything, and queues that are not as they were wanted."""

import re
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from queuey_sync.backends.base import Inbox
from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.errors import BackendError, BrokerUnavailable
from queuey_sync.queues import QueueConfig
from tests.conftest import FreshQueues
from tests.contract.adapters import Listener
from tests.support.broker import Broker
from tests.support.publishing import Looker, MakeBackend, envelope
from tests.support.waiting import eventually

SECOND = timedelta(seconds=1)


class Users:
    """Makes users of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._names: list[str] = []

    def url(self, name: str, **permissions: str) -> str:
        """The URL for a new user, with patterns for configure, write and read; nothing else."""
        self._names.append(name)
        self._broker.api(f"users/{name}", "PUT", {"password": "Pw", "tags": ""})
        patterns = {key: permissions.get(key, "^$") for key in ("configure", "write", "read")}
        self._broker.api(f"permissions/%2F/{name}", "PUT", patterns)
        host = urlsplit(self._broker.url).netloc.rpartition("@")[2]
        return f"amqp://{name}:Pw@{host}/%2F"

    def close(self) -> None:
        for name in self._names:
            self._broker.api(f"users/{name}", "DELETE")


@pytest.fixture(scope="session")
def amqp_url(broker: Broker) -> str:
    """The broker whose users these are, also where another one is given for the other tests."""
    return broker.url


@pytest.fixture
def users(broker: Broker) -> Iterator[Users]:
    """Makes users, who are deleted again."""
    users = Users(broker)
    yield users
    users.close()


def _hold_pattern(queue: str) -> str:
    return rf"^{re.escape(queue)}\.deferred\.[0-9]+$"


def test_who_may_not_declare_is_told_so(
    users: Users, queue: str, make_backend: MakeBackend
) -> None:
    """Without `declare=False` the refusal is one line with the queue and the broker's words."""
    backend = make_backend(users.url("worker", write=".*", read=".*"))
    with pytest.raises(BackendError, match=f"`{queue}` was refused: ACCESS_REFUSED") as caught:
        backend.declare([QueueConfig(queue)])
    assert "\n" not in str(caught.value)


def test_looking_for_queues_needs_no_permission(
    users: Users, queue: str, make_backend: MakeBackend
) -> None:
    """With `declare=False`, a user of the vhost without any permission finds both queues."""
    backend = make_backend(users.url("nobody"), declare=False)
    backend.declare([QueueConfig(queue)])


def test_a_queue_that_is_missing(
    users: Users, fresh_queue: FreshQueues, make_backend: MakeBackend
) -> None:
    """It is not made but named, with what to do."""
    backend = make_backend(users.url("nobody"), declare=False)
    name = fresh_queue()
    text = f"`{name}` was refused: NOT_FOUND.*; it is not declared here: see the option `declare`"
    with pytest.raises(BackendError, match=text):
        backend.declare([QueueConfig(name)])


def test_a_worker_without_declaring(
    users: Users, queue: str, make_backend: MakeBackend, looker: Looker
) -> None:
    """What a producer and a worker need: to write to the default exchange, and to read."""
    url = users.url("worker", write=r"^amq\.default$", read=".*")
    backend = make_backend(url, declare=False)
    backend.declare([QueueConfig(queue)])
    backend.publish(envelope(queue))
    backend.publish_dead(queue, b"{}", envelope(queue), "why")
    eventually(lambda: (1, 1) == (looker.count(queue), looker.count(f"{queue}.dead")))


def test_waiting_needs_to_configure_hold_queues(
    users: Users, queue: str, make_backend: MakeBackend, looker: Looker
) -> None:
    """A pattern for the hold queues alone is enough for retries, delays and deferrals."""
    hold = _hold_pattern(queue)
    url = users.url("worker", configure=hold, write=r"^amq\.default$", read=hold)
    backend = make_backend(url, declare=False)
    backend.declare([QueueConfig(queue)])
    backend.publish(envelope(queue), SECOND)
    backend.defer(envelope(queue), SECOND)
    eventually(lambda: 2 == looker.count(queue))


def test_waiting_without_that_permission(
    users: Users, queue: str, make_backend: MakeBackend
) -> None:
    """It is refused by the name of the hold queue, and the backend goes on."""
    url = users.url("worker", write=r"^amq\.default$")
    backend = make_backend(url, declare=False)
    backend.declare([QueueConfig(queue)])
    with pytest.raises(BackendError, match=rf"`{queue}\.deferred\.1000` was refused: ACCESS_"):
        backend.publish(envelope(queue), SECOND)
    backend.publish(envelope(queue))


def test_a_retry_without_that_permission(
    users: Users, queue: str, make_backend: MakeBackend, looker: Looker
) -> None:
    """The job stays unsettled, and is on its queue again when the consumer has gone."""
    url = users.url("worker", write=r"^amq\.default$", read=".*")
    backend = make_backend(url, declare=False)
    backend.declare([QueueConfig(queue)])
    sent = envelope(queue)
    backend.publish(sent)
    inbox, listener = Inbox(), Listener()
    consumption = backend.consume([QueueConfig(queue)], inbox, listener)
    delivery = inbox.get(timeout=20)
    assert delivery is not None
    with pytest.raises(BackendError, match="ACCESS_REFUSED"):
        delivery.retry(sent.next_attempt(), SECOND)
    consumption.stop(0)
    consumption.close()
    eventually(lambda: 1 == looker.count(queue))
    assert [str(sent.job_id)] == looker.message_ids(queue)


def test_arguments_that_differ_are_shown_with_those_wanted(
    backend: RabbitMQBackend, fresh_queue: FreshQueues
) -> None:
    """One line says what exists, in the broker's words, and all that was asked for."""
    name = fresh_queue()
    backend.declare([QueueConfig(name, max_priority=5)])
    with pytest.raises(BackendError) as caught:
        backend.declare([QueueConfig(name, max_priority=9, message_ttl=SECOND)])
    text = str(caught.value)
    assert "PRECONDITION_FAILED" in text
    assert "current is " in text
    assert text.endswith("; wanted: durable, x-message-ttl=1000, x-max-priority=9")
    assert "\n" not in text


def test_a_dead_letter_queue_that_differs(
    backend: RabbitMQBackend, fresh_queue: FreshQueues, looker: Looker
) -> None:
    """Report 26: it is named with what exists and what was wanted; the queue itself stands."""
    name = fresh_queue()
    looker.channel.queue_declare(f"{name}.dead", durable=True, arguments={"x-max-length": 5})
    with pytest.raises(
        BackendError, match=rf"`{name}\.dead` was .*'x-max-length'.*; wanted: durab"
    ):
        backend.declare([QueueConfig(name)])
    backend.publish(envelope(name))


def test_a_hold_queue_that_differs(backend: RabbitMQBackend, queue: str, looker: Looker) -> None:
    """Report 26: a deferral is refused in a line with both values, and other jobs go on."""
    hold = f"{queue}.deferred.1000"
    arguments = {"x-message-ttl": 2_000, "x-expires": 20_000}
    looker.channel.queue_declare(hold, durable=True, arguments=arguments)
    with pytest.raises(BackendError) as caught:
        backend.defer(envelope(queue), SECOND)
    backend.publish(envelope(queue))
    looker.channel.queue_delete(hold)
    text = str(caught.value)
    assert f"`{hold}`" in text
    assert "current is" in text
    assert "wanted: durable, x-message-ttl=1000" in text


@pytest.mark.parametrize(
    ("user", "vhost", "text"),
    [
        ("guest:guest", "nowhere", "access to vhost `nowhere` refused"),
        ("guest:wrong", "%2F", "access refused for user `guest`"),
        ("stranger:Pw", "%2F", "access refused for user `stranger`"),
    ],
)
def test_a_login_that_is_refused(
    broker: Broker, make_backend: MakeBackend, user: str, vhost: str, text: str
) -> None:
    """Who and what was refused is one line, without the password, from every way to dial."""
    host = urlsplit(broker.url).netloc.rpartition("@")[2]
    backend = make_backend(f"amqp://{user}@{host}/{vhost}")
    for dialling in (backend.declare, backend.depths):
        with pytest.raises(BrokerUnavailable, match=text) as caught:
            dialling([QueueConfig("q")])
        assert "\n" not in str(caught.value)
        assert user not in str(caught.value)
