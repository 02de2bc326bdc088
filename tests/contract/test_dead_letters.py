"""What every backend must do for who looks into dead letters: find, requeue, drop."""

from collections.abc import Iterator

import pytest

from queuey_sync.errors import BackendError, ConfigurationError, ShutDown
from queuey_sync.observe.dead_letters import DeadJob, DeadLetters
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import Adapter, envelope
from tests.support.waiting import eventually


@pytest.fixture
def dead(adapter: Adapter, queue: QueueConfig) -> DeadLetters:
    """Five dead jobs, two of them for another reason, and a body that is no envelope."""
    adapter.backend.publish_many([envelope(queue, number, priority=3) for number in range(5)])
    consumer = adapter.consume(queue)
    for number in range(5):
        consumer.take().dead_letter(f"fatal error: {'odd' if number % 2 else 'even'}")
    adapter.publish_raw(queue.full_name, b"~ broken")
    consumer.take().bury()
    consumer.end()
    found = DeadLetters(adapter.backend, queue)
    eventually(lambda: found.count() == 6)
    return found


def is_odd(job: DeadJob) -> bool:
    """Which are meant in these tests."""
    return "odd" in job.reason


def sight(jobs: Iterator[DeadJob]) -> list[str]:
    """The payloads of jobs, and bodies that are none, in order."""
    return [
        (bytes(job.envelope.payload) if job.envelope else job.found.body).decode() for job in jobs
    ]


def numbers(jobs: Iterator[DeadJob]) -> list[str]:
    """The same in any order: a quorum queue takes back what was looked at as it likes."""
    return sorted(sight(jobs))


ALL = ['{"n":0}', '{"n":1}', '{"n":2}', '{"n":3}', '{"n":4}', "~ broken"]


def test_a_look_changes_nothing(dead: DeadLetters) -> None:
    """However often, all or some of them, read to the end or not."""
    for _ in range(3):
        assert ALL == numbers(dead.find())
        assert ALL[1:4:2] == numbers(dead.find(is_odd))
        assert 2 == len(numbers(dead.find(limit=2)))
        next(dead.find())
        eventually(lambda: dead.count() == 6)


def test_a_look_keeps_the_order(dead: DeadLetters, adapter: Adapter) -> None:
    """The oldest comes first, also after looks that ended early."""
    if adapter.kind == "quorum":
        pytest.skip("the broker keeps no order of what it is given back")
    for limit in (None, 2, 1, None):
        assert ALL[:limit] == sight(dead.find(limit=limit))
        eventually(lambda: dead.count() == 6)


def test_each_tells_why_and_when(dead: DeadLetters) -> None:
    """The reason is the worker's; the age is that of the death where it is known."""
    malformed, *jobs = sorted(dead.find(), key=lambda job: job.envelope is not None)
    assert ["even"] * 3 + ["odd"] * 2 == sorted(job.reason.split()[-1] for job in jobs)
    assert ("malformed envelope", None) == (malformed.reason, malformed.envelope)
    ages = [job.age for job in jobs]
    assert all(age is not None and -2 < age.total_seconds() < 60 for age in ages)


def test_requeued_is_attempt_1_again(
    adapter: Adapter, queue: QueueConfig, dead: DeadLetters
) -> None:
    """Under the same id and with the same payload; the others stay."""
    before = [job.envelope for job in dead.find(is_odd)]
    assert 2 == dead.requeue(is_odd)
    consumer = adapter.consume(queue)
    after = consumer.take_envelopes(2)
    assert {(one.job_id, bytes(one.payload), 1, 0) for one in before if one} == {
        (one.job_id, bytes(one.payload), one.attempt, one.priority) for one in after
    }
    eventually(lambda: dead.count() == 4)
    assert [ALL[0], ALL[2], ALL[4], ALL[5]] == numbers(dead.find())


def test_all_are_requeued_but_what_is_no_job(
    adapter: Adapter, queue: QueueConfig, dead: DeadLetters
) -> None:
    """With a new payload, in batches, at a rate."""
    counts: list[int] = []
    assert 5 == dead.requeue(rate=100, payload=b'{"n":7}', each=counts.append)
    assert 5 == sum(counts)
    eventually(lambda: adapter.ready(queue.full_name) == 5)
    assert {b'{"n":7}'} == {bytes(one.payload) for one in adapter.consume(queue).take_envelopes(5)}
    assert ALL[5:] == numbers(dead.find())


def test_a_limit_takes_the_oldest(adapter: Adapter, queue: QueueConfig, dead: DeadLetters) -> None:
    """Of those that match."""
    if adapter.kind == "quorum":
        pytest.skip("as above")
    assert 1 == dead.requeue(is_odd, limit=1)
    eventually(lambda: adapter.ready(queue.full_name) == 1)
    assert 2 == dead.drop(limit=2)
    assert ALL[3:] == numbers(dead.find())


def test_dropped_is_gone(adapter: Adapter, queue: QueueConfig, dead: DeadLetters) -> None:
    """And nothing else is; a body that is no envelope can be dropped, too."""
    assert 2 == dead.drop(is_odd)
    assert [ALL[0], ALL[2], ALL[4], ALL[5]] == numbers(dead.find())
    assert 1 == dead.drop(lambda job: job.envelope is None)
    assert 3 == dead.drop()
    assert [] == numbers(dead.find())
    assert 0 == adapter.ready(queue.full_name)


def test_an_end_in_the_middle_loses_nothing(dead: DeadLetters) -> None:
    """What was requeued before is requeued, and all others are where they were."""

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dead.requeue(rate=1, each=stop)
    eventually(lambda: dead.count() == 5)
    assert 5 == len(numbers(dead.find()))


def test_a_rate_that_makes_no_sense(dead: DeadLetters) -> None:
    """It is refused before anything is opened."""
    for rate in (0, -1, float("nan")):
        with pytest.raises(ConfigurationError, match="rate"):
            dead.requeue(rate=rate)
    eventually(lambda: dead.count() == 6)


def test_an_unknown_queue(adapter: Adapter, queue: QueueConfig) -> None:
    """The error names it."""
    unknown = QueueConfig(f"{queue.full_name}-unknown")
    with pytest.raises(BackendError, match="-unknown"):
        list(DeadLetters(adapter.backend, unknown).find())


def test_a_closed_backend(adapter: Adapter, queue: QueueConfig) -> None:
    """Nothing can be looked at."""
    adapter.backend.close()
    with pytest.raises(ShutDown):
        list(DeadLetters(adapter.backend, queue).find())
