"""Tests of the AMQP properties of what is published (case O5 and its neighbours)."""

import time
from uuid import UUID

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_sync.backends.rabbitmq import properties
from queuey_sync.envelope import Envelope

EMPTY = vars(pika.BasicProperties())
JOB_ID = UUID("7c0e6f0e-31b4-4a55-9d9e-6e4a1a4f2f10")


def _envelope(job_type: str = "shop.Charge") -> Envelope:
    return Envelope.new(job_type, "shop.orders", b"{}")


def _third_attempt() -> Envelope:
    return _envelope().deferred(10).deferred(10).next_attempt().next_attempt().deferred(10)


def _set(message: pika.BasicProperties) -> dict[str, object]:
    """The properties that are sent."""
    return {key: value for key, value in vars(message).items() if value is not None}


def test_o5_envelope() -> None:
    """O5: everything that a published envelope carries, and nothing else."""
    envelope = _third_attempt()
    assert {
        "content_type": "application/json",
        "delivery_mode": 2,
        "message_id": str(envelope.job_id),
        "type": "shop.Charge",
        "priority": 10,
        "headers": {"x-attempt": 3, "x-deferrals": 3},
    } == _set(properties.of_envelope(envelope))


def test_o5_priority_is_always_set() -> None:
    """O5: an ordinary envelope has the priority 0, set."""
    assert properties.of_envelope(_envelope()).priority == 0


def test_o5_dead_letter() -> None:
    """O5: a dead letter says why, from where, and after how many attempts."""
    message = properties.of_dead_letter(_third_attempt(), "shop.orders", "bad input")
    assert {
        "x-attempt": 3,
        "x-deferrals": 3,
        "x-death-reason": "bad input",
        "x-original-queue": "shop.orders",
        "x-attempts": 3,
    } == message.headers
    assert message.expiration is None


def test_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A malformed body is persistent, and claims to be nothing that it is not."""
    monkeypatch.setattr(time, "time", lambda: 1_796_000_000.7)
    assert {
        "delivery_mode": 2,
        "headers": {"x-death-reason": "malformed envelope", "x-original-queue": "q"},
        "timestamp": 1_796_000_000,
    } == _set(properties.of_malformed("q"))


def test_long_type_is_cut() -> None:
    """A job type that does not fit is cut between two characters."""
    assert properties.of_envelope(_envelope("é" * 200)).type == "é" * 127


def test_long_reason_is_cut() -> None:
    """A reason is cut to what fits into a frame beside everything else."""
    message = properties.of_dead_letter(_envelope(), "q", "x" * 1_000_000)
    assert message.headers is not None
    assert "x" * 2048 == message.headers["x-death-reason"]


def test_surrogates_in_a_reason() -> None:
    """A reason that is no valid text does not keep a job from its dead-letter queue."""
    message = properties.of_dead_letter(_envelope(), "q", "bad \ud800 input")
    assert message.headers is not None
    assert message.headers["x-death-reason"] == "bad ? input"
    message.encode()


@pytest.mark.parametrize(
    ("attempt", "deferrals"), [(1, 0), (2**31, 2**31 - 1), (2**32 - 1, 2**32 - 1)]
)
def test_counts_can_be_encoded(attempt: int, deferrals: int) -> None:
    """Every count that an envelope can hold fits into a header."""
    body = (
        f'{{"job_id":"{JOB_ID}","job_type":"t","queue":"q","attempt":{attempt},'
        f'"enqueued_at_ms":1,"deferrals":{deferrals},"payload":{{}}}}'
    )
    envelope = Envelope.decode(body.encode())
    for message in (
        properties.of_envelope(envelope),
        properties.of_dead_letter(envelope, "q", "r"),
    ):
        decoded = pika.BasicProperties()
        decoded.decode(b"".join(message.encode()))
        assert message.headers == decoded.headers


@given(st.text(), st.integers(min_value=0, max_value=300))
def test_cut(text: str, limit: int) -> None:
    """A cut text fits, is a prefix, and loses no character that would have fitted."""
    cut = properties.cut(text, limit)
    assert text.startswith(cut)
    assert len(cut.encode()) <= limit
    if cut != text:
        assert len(text[: len(cut) + 1].encode()) > limit
