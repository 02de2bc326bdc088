"""A process pool under load on a real broker.

Evil jobs cost their own attempts and no others, and children that compute starve nothing.
"""

import random
import time
from collections import Counter
from typing import Any

import pika
import pytest

from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.envelope import Envelope
from queuey_sync.queues import QueueConfig
from tests.process.pool_workers import Start, each, each_start_method, program
from tests.support.waiting import eventually

_GIVEN_UP = "max attempts (2) exhausted after attempt 2: "
_PANIC = f"{_GIVEN_UP}handler panicked: "
_REASONS = [
    f"{_PANIC}process died (signal 9)",
    f"{_PANIC}process died (signal 11)",
    f"{_PANIC}process died (exit code 3)",
    f"{_PANIC}MemoryError",
    f"{_GIVEN_UP}job timed out after 1s",
]


def _take_all(url: str, queue: str) -> list[Any]:
    """The properties of all messages of a queue."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        found = []
        while (message := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(message[1])
        return found


@each_start_method
def test_evil_jobs_among_good_ones(
    start: Start, amqp_url: str, queue_prefix: str, start_method: str
) -> None:
    """All good jobs run once, the evil ones end as their policy says, no process is left."""
    evil = each("kill", "segfault", "exit", "eat")
    jobs = [*each(*["good"] * 200), *evil, *each("c", seconds=1000, limited=True)]
    random.Random(start_method).shuffle(jobs)
    pool = {"start_method": start_method, "child_memory_limit": 600_000_000}
    family = start(program(jobs, concurrency=4, pool=pool), BROKER=amqp_url, PREFIX=queue_prefix)
    family.awaits(200, "end", timeout=60)
    for what in ("kill", "segfault", "exit", "eat", "c"):
        family.awaits(2, "start", what=what, timeout=60)
    dead: list[Any] = []

    def all_dead() -> bool:
        dead.extend(_take_all(amqp_url, f"{queue_prefix}.work.dead"))
        return len(dead) >= len(_REASONS)

    eventually(all_dead, 20)
    assert 0 == family.stop(), family.log()
    good = Counter((one["number"], one["attempt"]) for one in family.marks("start", what="good"))
    assert {(number, 1): 1 for number in range(200)} == good
    assert 200 == len(family.marks("end"))
    assert sorted(_REASONS) == sorted(one.headers["x-death-reason"] for one in dead)
    assert [] == _take_all(amqp_url, f"{queue_prefix}.work")
    assert 0 == family.settle_failures()
    eventually(family.is_gone, 5)


@pytest.mark.slow
def test_b18_children_that_compute_starve_nothing(
    start: Start, amqp_url: str, queue_prefix: str
) -> None:
    """Report 18: jobs that compute beyond the heartbeat run once; a short one starts at once."""
    queue = f"{queue_prefix}.work"
    family = start(
        program(each(*["burn"] * 3, seconds=6.0), concurrency=2),
        BROKER=f"{amqp_url}?heartbeat=5",
        PREFIX=queue_prefix,
    )
    family.awaits(2, "end", what="burn")
    family.awaits(3, "start", what="burn")  # this one alone, for six seconds
    sent = time.time()
    _publish(amqp_url, queue)
    family.awaits(1, "start", what="good", timeout=4)
    assert 2 == len(family.marks("end", what="burn")), "the other slot still burns"
    assert family.marks("start", what="good")[0]["at"] - sent < 1
    family.awaits(3, "end", what="burn")
    assert 0 == family.stop()
    assert 4 == len(family.marks("start")) == len(family.marks("end"))
    assert [] == _take_all(amqp_url, queue)
    assert 0 == family.settle_failures()
    assert "ERROR" not in family.log()
    assert "WARNING" not in family.log()


def _publish(url: str, queue: str) -> None:
    """Enqueue a short job from here."""
    backend = RabbitMQBackend(url)
    try:
        backend.declare([QueueConfig(queue, prefetch=16)])
        backend.publish(Envelope.new("pool.act", queue, b'{"what": "good"}'))
    finally:
        backend.close()
