"""Tests of the names and arguments of what RabbitMQ holds (cases O1, O2, O4 and neighbours)."""

from datetime import timedelta

import pytest

from queuey_sync.backends.rabbitmq.options import Options
from queuey_sync.backends.rabbitmq.topology import (
    QueueDeclaration,
    Topology,
    check_name,
    hold_ttl_ms,
)
from queuey_sync.errors import BackendError
from queuey_sync.queues import QueueConfig

TOPOLOGY = Topology(Options())
HOLD_ARGUMENTS = {
    "x-message-ttl": 30_000,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "q",
    "x-expires": 60_000,
}


def test_o1_default_suffixes() -> None:
    """O1: the dead and hold queues are named after the queue, with dots."""
    assert TOPOLOGY.dead_queue("shop.orders") == "shop.orders.dead"
    assert TOPOLOGY.hold_queue("shop.orders", 30_000) == "shop.orders.deferred.30000"


def test_o1_own_suffixes() -> None:
    """O1: suffixes are taken as they are written."""
    topology = Topology(Options(dead_suffix="-dlq", deferred_suffix="-hold"))
    assert topology.dead_queue("q") == "q-dlq"
    assert topology.hold_queue("q", 250) == "q-hold.250"


@pytest.mark.parametrize(
    ("delay", "step_ms", "ttl_ms"),
    [
        (timedelta(seconds=30), 1000, 30_000),
        (timedelta(seconds=29.2), 1000, 30_000),
        (timedelta(seconds=1.001), 1000, 2_000),
        (timedelta(milliseconds=5), 1000, 1_000),
        (timedelta(0), 1000, 1_000),
        (timedelta(milliseconds=750), 250, 750),
        (timedelta(milliseconds=750, microseconds=1), 250, 1_000),
        (timedelta(milliseconds=2007), 1, 2_007),
        (timedelta(microseconds=1), 1, 1),
        (timedelta(milliseconds=2_147_483_647), 1, 2_147_483_647),
        (timedelta(milliseconds=2_147_483_000), 1000, 2_147_483_000),
    ],
)
def test_o2_rounding(delay: timedelta, step_ms: int, ttl_ms: int) -> None:
    """O2: a delay is rounded up to whole steps, at least one."""
    assert ttl_ms == hold_ttl_ms(delay, step_ms)


@pytest.mark.parametrize(
    ("delay", "step_ms"),
    [
        (timedelta(days=30), 1000),
        (timedelta(milliseconds=2_147_483_647), 1000),
        (timedelta(milliseconds=2_147_483_648), 1),
        (timedelta.max, 1),
    ],
)
def test_o2_too_long(delay: timedelta, step_ms: int) -> None:
    """O2: what a hold queue cannot wait for is refused, also when only the rounding is too long."""
    with pytest.raises(BackendError, match="longer than a hold queue can wait") as caught:
        hold_ttl_ms(delay, step_ms)
    assert "refused rather than released early" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        (QueueConfig("q"), {"x-max-priority": 10}),
        (
            QueueConfig("q", max_priority=None, message_ttl=timedelta(seconds=30)),
            {"x-message-ttl": 30_000},
        ),
        (QueueConfig("q", max_priority=0), {}),
        (QueueConfig("q", max_priority=255), {"x-max-priority": 255}),
        (
            QueueConfig("q", max_priority=0, message_ttl=timedelta(microseconds=1)),
            {"x-message-ttl": 1},
        ),
        (QueueConfig("q", max_priority=0, message_ttl=timedelta(0)), {"x-message-ttl": 1}),
        (
            QueueConfig("q", max_priority=0, message_ttl=timedelta(days=60)),
            {"x-message-ttl": 4_294_967_295},
        ),
    ],
)
def test_o4_main_and_dead_queue(config: QueueConfig, arguments: dict[str, int]) -> None:
    """O4: the queue has a TTL and levels as configured; its dead queue has no arguments."""
    assert [
        QueueDeclaration("q", durable=True, arguments=arguments),
        QueueDeclaration("q.dead", durable=True, arguments={}),
    ] == TOPOLOGY.declarations(config)


def test_quorum_queues() -> None:
    """A quorum queue and its dead-letter queue lose nothing that is given back again and again."""
    assert [
        QueueDeclaration(
            "q",
            arguments={
                "x-queue-type": "quorum",
                "x-delivery-limit": 1_000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "q.dead",
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            },
        ),
        QueueDeclaration(
            "q.dead", arguments={"x-queue-type": "quorum", "x-delivery-limit": 2_147_483_647}
        ),
    ] == TOPOLOGY.declarations(QueueConfig("q", kind="quorum"))


@pytest.mark.parametrize(
    ("options", "ttl"),
    [(Options(), timedelta(hours=1)), (Options(declare_dead_letter_queues=False), None)],
)
def test_a_quorum_queue_without_a_place_for_what_is_dead(
    options: Options, ttl: timedelta | None
) -> None:
    """Nothing is moved for want of a place, nor is what is too old: there is no limit."""
    queue = Topology(options).declarations(QueueConfig("q", message_ttl=ttl, kind="quorum"))[0]
    given = {"x-message-ttl": 3_600_000} if ttl else {}
    unlimited = {"x-queue-type": "quorum", "x-delivery-limit": 2_147_483_647}
    assert unlimited | given == queue.arguments


def test_quorum_hold_queue() -> None:
    """It has a name of its own, stays, and moves what it holds only when that has arrived."""
    assert TOPOLOGY.hold(QueueConfig("q", kind="quorum"), 30_000) == QueueDeclaration(
        "q.deferred.quorum.30000",
        arguments={
            "x-queue-type": "quorum",
            "x-message-ttl": 30_000,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "q",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
    )


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (1, 100),
        (500, 500),
        (501, 1_000),
        (31_000, 45_000),
        (45_001, 60_000),
        (3_600_000, 3_600_000),
        (12 * 3_600_000 + 1, 18 * 3_600_000),
        (21 * 86_400_000, 21 * 86_400_000),
        (21 * 86_400_000 + 1, 2_147_483_647),
        (2_147_483_647, 2_147_483_647),
    ],
)
def test_quorum_holds_have_few_lengths(wanted: int, held: int) -> None:
    """The next longer one of a ladder: never early, and at most about twice as long."""
    hold = TOPOLOGY.hold(QueueConfig("q", kind="quorum"), wanted)
    assert (f"q.deferred.quorum.{held}", held) == (hold.name, hold.arguments["x-message-ttl"])


def test_dead_queue_is_durable_for_a_transient_queue() -> None:
    """The dead queue survives a restart even where its queue does not."""
    queue, dead = TOPOLOGY.declarations(QueueConfig("q", durable=False))
    assert (False, True) == (queue.durable, dead.durable)


def test_dead_queues_can_be_switched_off() -> None:
    """Without dead-letter queues only the queue itself is declared."""
    topology = Topology(Options(declare_dead_letter_queues=False))
    assert ["q"] == [queue.name for queue in topology.declarations(QueueConfig("q"))]


@pytest.mark.parametrize(
    "config",
    [
        QueueConfig("q"),
        QueueConfig("q", prefetch=1, max_priority=3, message_ttl=timedelta(seconds=5)),
    ],
)
def test_o4_hold_queue(config: QueueConfig) -> None:
    """O4: a hold queue's four arguments depend on its name alone."""
    expected = QueueDeclaration("q.deferred.30000", durable=True, arguments=HOLD_ARGUMENTS)
    assert expected == TOPOLOGY.hold(config, 30_000)


def test_hold_queue_is_as_durable_as_its_queue() -> None:
    """A transient queue's holds are transient."""
    assert not TOPOLOGY.hold(QueueConfig("q", durable=False), 1).durable


def test_hold_queue_expiry_is_clamped() -> None:
    """The expiry of the longest hold stays within 32 bits."""
    arguments = TOPOLOGY.hold(QueueConfig("q"), 2_147_483_647).arguments
    assert arguments["x-expires"] == 4_294_967_294


def test_longest_name() -> None:
    """With the default suffixes a queue name may have 235 bytes, and not one more."""
    TOPOLOGY.check(QueueConfig("q" * 235))
    with pytest.raises(BackendError, match="leaves no room for its hold queues"):
        TOPOLOGY.check(QueueConfig("q" * 236))


def test_names_are_measured_in_bytes() -> None:
    """A character of two bytes counts twice."""
    with pytest.raises(BackendError, match="leaves no room"):
        TOPOLOGY.check(QueueConfig("é" * 118))


def test_room_for_a_long_dead_suffix() -> None:
    """The dead-letter queue's name must fit too, where there is one."""
    long = "-" + "d" * 99
    with pytest.raises(BackendError, match="dead-letter"):
        Topology(Options(dead_suffix=long)).check(QueueConfig("q" * 200))
    off = Options(dead_suffix=long, declare_dead_letter_queues=False)
    Topology(off).check(QueueConfig("q" * 200))


@pytest.mark.parametrize("name", ["q" * 256, "q\ud800", "x" * 10_000_000])
def test_names_that_amqp_cannot_encode(name: str) -> None:
    """An impossible name is a short, printable error."""
    with pytest.raises(BackendError, match="invalid AMQP name") as caught:
        check_name(name)
    assert len(str(caught.value).encode()) < 300
