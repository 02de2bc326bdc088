"""Tests of the bookkeeping of publishing: what is sent, credited to whom, and withdrawn."""

import threading
from datetime import timedelta

import pytest

from queuey_sync.backends.rabbitmq.publishing.calls import Batch
from queuey_sync.backends.rabbitmq.publishing.outbox import Outbox
from queuey_sync.backends.rabbitmq.topology import QueueDeclaration
from queuey_sync.errors import (
    BackendError,
    PublishRefused,
    PublishUnconfirmed,
    PublishUnroutable,
    ShutDown,
)
from tests.support.outbox import AT_ONCE, batch_of, ids, outcome, take_all

HOLD = QueueDeclaration("q.deferred.1000")


def _filled(ids: str, window: int = 100) -> tuple[Outbox, Batch]:
    outbox, batch = Outbox(window), batch_of(ids)
    outbox.add(batch.entries)
    return outbox, batch


def test_entries_go_out_in_order_within_the_window() -> None:
    """No more than the window is unconfirmed; each confirm makes room for the next."""
    outbox, _ = _filled("abcde", window=2)
    assert take_all(outbox) == "ab"
    outbox.confirmed(1, multiple=False)
    assert take_all(outbox) == "c"
    outbox.confirmed(3, multiple=True)
    assert take_all(outbox) == "de"


@pytest.mark.parametrize(
    ("tag", "multiple", "confirmed"),
    [(2, False, "b"), (2, True, "ab"), (9, True, "abc"), (9, False, ""), (0, True, "")],
)
def test_a_confirm_counts_for_its_tags(tag: int, multiple: bool, confirmed: str) -> None:
    """A confirm covers one tag, or every tag up to its own; unknown tags do no harm."""
    outbox, batch = _filled("abc")
    take_all(outbox)
    outbox.confirmed(tag, multiple=multiple)
    assert confirmed == ids([entry for entry in batch.entries if entry.finished])


def test_all_confirmed_is_success() -> None:
    """A batch is done when its last entry is confirmed, and reports no failure."""
    outbox, batch = _filled("abc")
    take_all(outbox)
    outbox.confirmed(2, multiple=True)
    before = batch.finished
    outbox.confirmed(3, multiple=False)
    assert (False, True) == (before, batch.finished)
    assert {} == outcome(batch)


def test_a_return_is_credited_to_its_own_entry() -> None:
    """Only the entry with the returned key fails, also within one multiple confirm."""
    outbox, batch = _filled("abc")
    take_all(outbox)
    outbox.returned("q", "b", "312 NO_ROUTE")
    outbox.confirmed(3, multiple=True)
    failures = outcome(batch)
    assert list(failures) == [1]
    assert isinstance(failures[1], PublishUnroutable)
    assert "`q` was unroutable (routing key `q`): 312 NO_ROUTE" in str(failures[1])
    assert "`queuey-sync declare MODULE:APP`" in str(failures[1])


def test_a_return_alone_settles_nothing() -> None:
    """A return marks; the confirm decides."""
    outbox, batch = _filled("a")
    take_all(outbox)
    outbox.returned("q", "a", "312 NO_ROUTE")
    assert not batch.finished


def test_a_return_of_an_unknown_key_is_ignored() -> None:
    """What is returned for nobody fails nobody."""
    outbox, batch = _filled("a")
    take_all(outbox)
    outbox.returned("other", "a", "312 NO_ROUTE")
    outbox.confirmed(1, multiple=False)
    assert {} == outcome(batch)


def test_equal_keys_take_turns() -> None:
    """Entries that a return could not tell apart are never unconfirmed together; others pass."""
    outbox, batch = _filled("aaba")
    assert take_all(outbox) == "ab"
    outbox.returned("q", "a", "312 NO_ROUTE")
    outbox.confirmed(1, multiple=False)
    assert take_all(outbox) == "a"
    outbox.confirmed(3, multiple=True)
    assert take_all(outbox) == "a"
    outbox.confirmed(4, multiple=False)
    assert [0] == list(outcome(batch))


def test_one_message_id_on_two_queues_is_two_keys() -> None:
    """A key is the routing key and the message id together."""
    outbox = Outbox()
    outbox.add([*batch_of("a", "q").entries, *batch_of("a", "r").entries])
    assert take_all(outbox) == "aa"


def test_nack() -> None:
    """A nack is a refusal that names the queue."""
    outbox, batch = _filled("ab")
    take_all(outbox)
    outbox.nacked(1, multiple=False)
    outbox.confirmed(2, multiple=False)
    failures = outcome(batch)
    assert [0] == list(failures)
    assert isinstance(failures[0], PublishRefused)
    assert "`q` was nacked" in str(failures[0])


def test_withdrawn_before_it_was_sent() -> None:
    """At the limit an entry that was not sent says so, and is never sent later."""
    outbox, batch = _filled("a")
    failures = outcome(batch)
    assert None is outbox.take()
    error = failures[0]
    assert isinstance(error, PublishUnconfirmed)
    assert not error.maybe_published
    assert "`q` was never sent" in str(error)


def test_withdrawn_after_it_was_sent() -> None:
    """At the limit an entry that was sent is unknown; its late confirm changes nothing."""
    outbox, batch = _filled("a")
    outbox.take()
    failures = outcome(batch)
    outbox.confirmed(1, multiple=False)
    error = failures[0]
    assert isinstance(error, PublishUnconfirmed)
    assert error.maybe_published
    assert "`q` was sent and its fate is unknown" in str(error)
    assert {0: error} == batch.failures


def test_a_batch_tells_its_entries_apart_at_the_limit() -> None:
    """Each entry of a withdrawn batch gets its own fate."""
    outbox, batch = _filled("abc", window=1)
    outbox.take()
    outbox.confirmed(1, multiple=False)
    outbox.take()
    failures = outcome(batch)
    assert {1: True, 2: False} == {
        index: error.maybe_published
        for index, error in failures.items()
        if isinstance(error, PublishUnconfirmed)
    }


def test_lost_connection_sends_again_in_order() -> None:
    """After a loss the unconfirmed go first, in their order, then what had not been sent."""
    outbox, batch = _filled("abcd", window=3)
    take_all(outbox)
    outbox.confirmed(1, multiple=False)
    outbox.returned("q", "b", "312 NO_ROUTE")
    assert [] == outbox.lost()
    assert take_all(outbox) == "bcd"
    outbox.confirmed(3, multiple=True)
    assert {} == outcome(batch)


def test_lost_connection_keeps_those_that_wait_for_their_turn() -> None:
    """What waited behind an equal entry is not forgotten by a loss."""
    outbox, _ = _filled("aab")
    take_all(outbox)
    outbox.lost()
    assert take_all(outbox) == "ab"
    outbox.confirmed(1, multiple=False)
    assert take_all(outbox) == "a"


def test_lost_connection_does_not_send_what_was_withdrawn() -> None:
    """A caller that has gone gets no second copy."""
    outbox, batch = _filled("a")
    outbox.take()
    batch.wait(AT_ONCE)
    outbox.lost()
    assert None is outbox.take()


def test_abandoned_callers_do_not_fill_the_window() -> None:
    """Entries that are never answered and that nobody waits for leave room for others."""
    outbox, stuck = _filled("ab", window=2)
    take_all(outbox)
    stuck.wait(AT_ONCE)
    outbox.add(batch_of("cd").entries)
    assert take_all(outbox) == "cd"
    outbox.confirmed(1, multiple=False)


def test_a_channel_closed_over_one_message_finds_it() -> None:
    """The message that the broker closes the channel over fails alone; the others are sent."""
    outbox, batch = _filled("abc")
    take_all(outbox)
    outbox.closed_by_broker("too large")
    assert take_all(outbox) == "a"
    outbox.confirmed(1, multiple=False)
    assert take_all(outbox) == "b"
    outbox.closed_by_broker("too large")
    assert take_all(outbox) == "c"
    outbox.confirmed(1, multiple=False)
    failures = outcome(batch)
    assert [1] == list(failures)
    assert isinstance(failures[1], PublishRefused)
    assert "too large" in str(failures[1])


def test_after_the_suspects_the_window_is_wide_again() -> None:
    """One at a time lasts only as long as there is a suspect."""
    outbox, _ = _filled("ab")
    take_all(outbox)
    outbox.closed_by_broker("why")
    outbox.add(batch_of("cd").entries)
    assert take_all(outbox) == "a"
    outbox.confirmed(1, multiple=False)
    assert take_all(outbox) == "b"
    outbox.confirmed(2, multiple=False)
    assert take_all(outbox) == "cd"


def test_what_cannot_be_sent_fails_alone() -> None:
    """An entry that could not be put on the wire uses no tag."""
    outbox, batch = _filled("ab")
    outbox.take()
    outbox.untake(BackendError("cannot be sent"))
    outbox.take()
    outbox.confirmed(1, multiple=False)
    failures = outcome(batch)
    assert [0] == list(failures)
    assert "cannot be sent" in str(failures[0])


def test_abandoning_tells_sent_from_never_sent() -> None:
    """Giving up on a batch gives the error, or unknown for what has been sent."""
    outbox, batch = _filled("ab", window=1)
    outbox.take()
    batch.abandon(lambda: ShutDown("closed"))
    failures = outcome(batch)
    assert isinstance(failures[0], PublishUnconfirmed)
    assert failures[0].maybe_published
    assert isinstance(failures[1], ShutDown)


def test_live_calls() -> None:
    """A call is live from its adding until it is confirmed or withdrawn."""
    outbox, batch = _filled("aab", window=2)
    take_all(outbox)
    assert {batch} == outbox.calls()
    outbox.confirmed(2, multiple=True)
    assert outbox.has_live()
    take_all(outbox)
    outbox.confirmed(3, multiple=False)
    assert not outbox.has_live()


def test_wait_goes_on_while_there_is_progress() -> None:
    """A long batch is given up when nothing happens for the limit, not when the limit is over."""
    batch = batch_of("abcde")
    pace = threading.Event()

    def confirm_slowly() -> None:
        for entry in batch.entries:
            pace.wait(0.03)
            entry.finish()

    thread = threading.Thread(target=confirm_slowly)
    thread.start()
    batch.wait(timedelta(milliseconds=80))
    thread.join()
    assert {} == batch.outcome("no confirm")
