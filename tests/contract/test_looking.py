"""What every backend must tell of its queues: to a consumption that asks, and to anybody."""

from queue import Empty, SimpleQueue

import pytest

from queuey_sync.backends.base import Consumption, Depth, Survey
from queuey_sync.errors import BackendError, ShutDown
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import STEP, Adapter, Consumer, envelope
from tests.support.waiting import eventually


def survey(consumption: Consumption) -> Survey:
    """Ask once, and wait for the answer."""
    answers: SimpleQueue[Survey] = SimpleQueue()
    consumption.survey(answers.put)
    return answers.get(timeout=5)


def until_surveyed(consumer: Consumer, ready: dict[str, int], delivered: int) -> None:
    """Ask until the answer is this one."""
    expected = (ready, delivered)

    def surveyed() -> bool:
        seen = survey(consumer.consumption)
        assert expected == (dict(seen.ready), seen.delivered)
        return True

    eventually(surveyed)


def depth(adapter: Adapter, queue: QueueConfig) -> Depth:
    """What the backend says of one queue."""
    (found,) = adapter.backend.depths([queue])
    return found


def counts(adapter: Adapter, queue: QueueConfig) -> tuple[int, int | None, int]:
    """What waits, what is held, what is dead."""
    found = depth(adapter, queue)
    return found.ready, found.held, found.dead


def test_a_survey_of_nothing(adapter: Adapter, queue: QueueConfig) -> None:
    """Of a consumption that was handed nothing, both figures are 0."""
    until_surveyed(adapter.consume(queue), {queue.full_name: 0}, 0)


def test_a_survey_counts_what_waits_and_what_was_delivered(adapter: Adapter) -> None:
    """What is in the inbox, or in hand, or done with, was delivered; the rest waits."""
    queue = adapter.queue(prefetch=2)
    name = queue.full_name
    adapter.backend.publish_many([envelope(queue, number) for number in range(3)])
    consumer = adapter.consume(queue)
    until_surveyed(consumer, {name: 1}, 2)
    taken = consumer.take()
    until_surveyed(consumer, {name: 1}, 2)
    taken.ack()
    until_surveyed(consumer, {name: 0}, 3)
    consumer.take_envelopes(2)
    until_surveyed(consumer, {name: 0}, 3)


def test_a_survey_counts_each_delivery_of_a_job(adapter: Adapter, queue: QueueConfig) -> None:
    """A job that comes again was delivered twice."""
    adapter.backend.publish(envelope(queue))
    consumer = adapter.consume(queue)
    consumer.take().release()
    consumer.take().ack()
    until_surveyed(consumer, {queue.full_name: 0}, 2)


def test_a_survey_names_all_queues(adapter: Adapter) -> None:
    """Each queue of the consumption has its own figure; deliveries are counted together."""
    narrow, wide = adapter.queue("narrow", prefetch=1), adapter.queue("wide", prefetch=2)
    for queue in (narrow, wide):
        adapter.backend.publish_many([envelope(queue, number) for number in range(4)])
    consumer = adapter.consume(narrow, wide)
    until_surveyed(consumer, {narrow.full_name: 3, wide.full_name: 2}, 3)


def test_a_survey_tells_of_its_own_consumption(adapter: Adapter) -> None:
    """What another one was handed neither waits nor was delivered here."""
    queue = adapter.queue(prefetch=1)
    adapter.backend.publish_many([envelope(queue, number) for number in range(3)])
    first, second = adapter.consume(queue), adapter.consume(queue)
    until_surveyed(first, {queue.full_name: 1}, 1)
    until_surveyed(second, {queue.full_name: 1}, 1)


def test_surveys_see_no_job_in_neither_place(adapter: Adapter) -> None:
    """While jobs move, what waits and what was delivered are never less than what there is."""
    queue = adapter.queue(prefetch=3)
    adapter.backend.publish_many([envelope(queue, number) for number in range(40)])
    consumer = adapter.consume(queue)
    for _ in range(40):
        consumer.take_envelopes(1)
        seen = survey(consumer.consumption)
        assert seen.ready[queue.full_name] + seen.delivered >= 40
    until_surveyed(consumer, {queue.full_name: 0}, 40)


@pytest.mark.parametrize("end", ["stop", "close", "backend closed"])
def test_no_answer_once_it_has_ended(adapter: Adapter, queue: QueueConfig, end: str) -> None:
    """A survey that is asked for when the consumption is over is no error, and has no answer."""
    consumer = adapter.consume(queue)
    until_surveyed(consumer, {queue.full_name: 0}, 0)
    answers: SimpleQueue[Survey] = SimpleQueue()
    if end == "backend closed":
        adapter.backend.close()
        eventually(lambda: consumer.listener.errors)
    else:
        consumer.consumption.stop(1)
        assert consumer.inbox.get(timeout=5) is None
    if end == "close":
        consumer.end()
    consumer.consumption.survey(answers.put)
    with pytest.raises(Empty):
        answers.get(timeout=0.2)


def test_depths_of_empty_queues(adapter: Adapter) -> None:
    """Each queue that was asked for has an answer, in the order of the question."""
    one, another = adapter.queue("one"), adapter.queue("another")
    adapter.backend.publish(envelope(another))
    eventually(lambda: depth(adapter, another).ready == 1)
    depths = adapter.backend.depths([one, another])
    assert [(0, 0), (1, 0)] == [(each.ready, each.dead) for each in depths]
    assert [0, 0] == [each.consumers for each in depths]
    assert adapter.backend.depths([]) == []


def test_depth_counts_what_waits_is_dead_or_malformed(adapter: Adapter) -> None:
    """A job in hand is in none of the figures; a dead letter and a malformed body are dead."""
    queue = adapter.queue(prefetch=1)
    adapter.backend.publish_many([envelope(queue, number) for number in range(3)])
    consumer = adapter.consume(queue)
    taken = consumer.take()
    eventually(lambda: (2, 0, 1) == _ready_dead_consumers(adapter, queue))
    taken.dead_letter("bad input")
    eventually(lambda: (1, 1, 1) == _ready_dead_consumers(adapter, queue))
    consumer.end()
    adapter.publish_raw(queue.full_name, b"{")
    another = adapter.consume(queue)
    another.take_envelopes(2)
    another.take().bury()
    another.end()
    eventually(lambda: (0, 2, 0) == _ready_dead_consumers(adapter, queue))


def _ready_dead_consumers(adapter: Adapter, queue: QueueConfig) -> tuple[int, int, int]:
    found = depth(adapter, queue)
    return found.ready, found.dead, found.consumers


def test_depth_counts_consumers(adapter: Adapter, queue: QueueConfig) -> None:
    """Every consumption that runs is one."""
    consumers = [adapter.consume(queue) for _ in range(2)]
    for consumer in consumers:
        until_surveyed(consumer, {queue.full_name: 0}, 0)
    assert depth(adapter, queue).consumers == 2
    consumers[0].end()
    eventually(lambda: depth(adapter, queue).consumers == 1)


def test_depth_counts_what_is_held(adapter: Adapter, queue: QueueConfig) -> None:
    """Retries, delays and deferrals are held until they are due; who cannot count them says so."""
    adapter.backend.publish(envelope(queue, 1))
    consumer = adapter.consume(queue)
    delivery = consumer.take()
    consumer.consumption.stop(0)
    delivery.retry(delivery.envelope.next_attempt(), STEP * 2)
    adapter.backend.publish(envelope(queue, 2), STEP * 2)
    adapter.backend.defer(envelope(queue, 3), STEP * 2)
    consumer.end()
    assert counts(adapter, queue)[1] in (3, None)
    assert counts(adapter, queue)[::2] == (0, 0)
    gate = adapter.queue("gate")
    adapter.backend.publish(envelope(gate), STEP * 3)
    adapter.consume(gate).take()
    assert counts(adapter, queue)[1] in (0, None)
    assert counts(adapter, queue)[::2] == (3, 0)


def test_next_due_has_a_time_zone(adapter: Adapter, queue: QueueConfig) -> None:
    """Who knows when the first of the held ones is due says it in time that means something."""
    adapter.backend.publish(envelope(queue), STEP)
    due = depth(adapter, queue).next_due
    assert due is None or due.tzinfo is not None


def test_looking_changes_nothing(adapter: Adapter, queue: QueueConfig) -> None:
    """What was looked at is delivered as before, in order."""
    sent = [envelope(queue, number) for number in range(3)]
    adapter.backend.publish_many(sent)
    for _ in range(3):
        assert depth(adapter, queue).ready == 3
    assert sent == adapter.consume(queue).take_envelopes(3)


def test_the_depth_of_an_unknown_queue(adapter: Adapter, queue: QueueConfig) -> None:
    """A queue that does not exist is an error that names it, and is not made by looking."""
    unknown = QueueConfig(f"{queue.full_name}.nowhere")
    for _ in range(2):
        with pytest.raises(BackendError, match=r"nowhere"):
            adapter.backend.depths([queue, unknown])
    assert depth(adapter, queue).ready == 0


def test_no_depths_of_a_closed_backend(adapter: Adapter, queue: QueueConfig) -> None:
    """I6: once the backend is closed it says so."""
    adapter.backend.close()
    with pytest.raises(ShutDown):
        adapter.backend.depths([queue])
