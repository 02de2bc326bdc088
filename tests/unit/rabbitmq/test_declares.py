"""Tests of the bookkeeping of declarations: hold queues, refusals, what is asked for again."""

from datetime import timedelta

import pytest

from queuey_sync.backends.rabbitmq.publishing.calls import Declaration
from queuey_sync.backends.rabbitmq.publishing.outbox import Declares, Outbox
from queuey_sync.backends.rabbitmq.topology import QueueDeclaration
from queuey_sync.errors import BrokerUnavailable
from tests.support.outbox import AT_ONCE, batch_of, ids, outcome, take_all

HOLD = QueueDeclaration("q.deferred.1000")


def test_returned_from_a_missing_hold_queue() -> None:
    """When a hold queue vanished after its declaration, it is declared and published to again."""
    outbox, declares = Outbox(), Declares()
    batch = batch_of("a", HOLD.name, HOLD)
    declares.ask(batch.entries)
    assert HOLD == declares.take()
    outbox.add(declares.landed())
    assert take_all(outbox) == "a"
    outbox.returned(HOLD.name, "a", "312 NO_ROUTE")
    declares.ask(outbox.confirmed(1, multiple=False))
    assert not batch.finished
    assert HOLD == declares.take()
    outbox.add(declares.landed())
    assert take_all(outbox) == "a"
    outbox.confirmed(2, multiple=False)
    assert {} == outcome(batch)


def test_lost_entries_declare_their_hold_queue_again() -> None:
    """A new connection may have found a broker without the hold queue."""
    outbox = Outbox()
    batch = batch_of("a", HOLD.name, HOLD)
    outbox.add(batch.entries)
    outbox.take()
    assert list(batch.entries) == outbox.lost()
    assert None is outbox.take()


def test_one_declaration_serves_those_who_asked_before_it_was_sent() -> None:
    """Who asks while a declaration is on its way needs the next one."""
    declares = Declares()
    declares.ask(batch_of("ab", HOLD.name, HOLD).entries)
    assert HOLD == declares.take()
    declares.ask(batch_of("c", HOLD.name, HOLD).entries)
    assert None is declares.take()
    assert ids(declares.landed()) == "ab"
    assert HOLD == declares.take()
    assert ids(declares.landed()) == "c"
    assert None is declares.take()


def test_a_refused_hold_queue_fails_its_entries_alone() -> None:
    """A refusal reaches those who asked for that queue; the others' declarations go on."""
    other = QueueDeclaration("q.deferred.2000")
    declares = Declares()
    refused, kept = batch_of("ab", HOLD.name, HOLD), batch_of("c", other.name, other)
    declares.ask([*refused.entries, *kept.entries])
    assert HOLD == declares.take()
    declares.refused("PRECONDITION_FAILED - inequivalent arg")
    failures = outcome(refused)
    assert {0, 1} == set(failures)
    assert "`q.deferred.1000` was refused: PRECONDITION_FAILED" in str(failures[0])
    assert failures[0] is not failures[1]
    assert other == declares.take()
    assert ids(declares.landed()) == "c"


def test_a_lost_declaration_is_asked_for_again() -> None:
    """What was on its way when the channel went is declared on the next one."""
    declares = Declares()
    call = Declaration([QueueDeclaration("q"), QueueDeclaration("q.dead")])
    declares.add(call)
    declares.ask(batch_of("a", HOLD.name, HOLD).entries)
    declares.take()
    declares.landed()
    declares.take()
    declares.lost()
    assert declares.take() == QueueDeclaration("q.dead")
    declares.landed()
    assert call.finished
    assert HOLD == declares.take()
    declares.lost()
    assert HOLD == declares.take()
    assert ids(declares.landed()) == "a"


def test_a_declaration_stops_at_its_refusal() -> None:
    """The first refused queue ends a declaration, and what exists is counted."""
    declares = Declares()
    call = Declaration([QueueDeclaration("a"), QueueDeclaration("b"), QueueDeclaration("c")])
    declares.add(call)
    declares.take()
    declares.landed()
    declares.take()
    declares.refused("PRECONDITION_FAILED - why")
    assert (1, True) == (call.landed, call.finished)
    assert "declaring `b` was refused: PRECONDITION_FAILED - why" in str(call.error)
    assert None is declares.take()


def test_withdrawn_declarations_are_not_sent() -> None:
    """Nobody waits: nothing is declared, and nothing is live."""
    declares = Declares()
    call = Declaration([QueueDeclaration("a")])
    batch = batch_of("a", HOLD.name, HOLD)
    declares.add(call)
    declares.ask(batch.entries)
    assert {call, batch} == declares.calls()
    call.wait(AT_ONCE)
    batch.wait(AT_ONCE)
    assert set() == declares.calls()
    assert None is declares.take()


def test_declarations_that_nobody_awaits_keep_nothing_open() -> None:
    """Declaring lost queues again is no reason to dial."""
    declares = Declares()
    declares.add(Declaration([QueueDeclaration("a")], awaited=False), first=True)
    assert set() == declares.calls()
    assert declares.take() == QueueDeclaration("a")


def test_an_abandoned_declaration_has_its_error() -> None:
    """Giving up on a declaration ends the wait with the error."""
    call = Declaration([QueueDeclaration("a")])
    call.abandon(lambda: BrokerUnavailable("gone"))
    call.wait(timedelta(seconds=10))
    assert isinstance(call.error, BrokerUnavailable)


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("stall", "second_stall", "published_again"),
    [(0.9, 0.0, None), (1.1, 0.8, False), (1.1, 0.9, True), (2.5, 0.0, True)],
)
def test_a_confirm_that_comes_late_after_the_declaration(
    stall: float, second_stall: float, published_again: bool | None
) -> None:
    """A hold queue of 1 s that took its message late is kept alive, or the message sent again."""
    clock = _Clock()
    hold = QueueDeclaration("q.deferred.1000", arguments={"x-expires": 2000})
    outbox, declares = Outbox(clock=clock), Declares(clock)
    batch = batch_of("a", hold=hold)
    declares.ask(batch.entries)
    assert declares.take() == hold
    clock.now += stall
    outbox.add(declares.landed())
    assert take_all(outbox) == "a"
    declares.ask(outbox.confirmed(1, multiple=False))
    if published_again is None:
        assert outcome(batch) == {}
        return
    assert not batch.finished
    assert declares.take() == hold
    clock.now += second_stall
    outbox.add(declares.landed())
    assert published_again == (take_all(outbox) == "a")
    assert published_again == (not batch.finished)
