"""Tests of the envelope: the exact bytes on the wire, and everything that is refused as malformed.

The bodies in ``tests/golden`` are promises: files named ``refused-…`` must be refused, all others
must decode for ever. None of them is ever edited.
"""

import json
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_sync.envelope import Envelope
from queuey_sync.errors import MalformedEnvelope, SerializationError

GOLDEN = Path(__file__).parents[1] / "golden"
ACCEPTED = sorted(set(GOLDEN.glob("*.json")) - set(GOLDEN.glob("refused-*.json")))
REFUSED = sorted(GOLDEN.glob("refused-*.json"))
JOB_ID = uuid.UUID("6f1c1f7e-2b0a-4f0e-9d4b-0d8f5f9c2a11")
OLD = {
    "job_id": str(JOB_ID),
    "job_type": "shop.Charge",
    "queue": "shop.orders",
    "attempt": 2,
    "enqueued_at_ms": 1_700_000_000_123,
    "payload": {"customer": "ada"},
}
WRONG: dict[str, list[object]] = {
    "job_id": ["x", 1, None, str(JOB_ID)[:-1], str(JOB_ID) + "0"],
    "job_type": [1, None, ["a"]],
    "queue": [1, None, {}],
    "attempt": ["2", 2.0, True, None, -1, 2**32, 2**64, [2]],
    "enqueued_at_ms": ["1", 1.0, True, None, -1, 2**64, -(2**64)],
    "deferrals": ["1", 1.0, False, None, -1, 2**32],
    "priority": ["1", 1.0, True, None, -1, 256],
    "correlation_id": [1, True, ["a"], {}],
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def body(**changes: Any) -> bytes:
    """The body of an old envelope with some fields changed."""
    return json.dumps(OLD | changes).encode()


def fresh(**options: Any) -> Envelope:
    """A fresh envelope of the fixture job."""
    return Envelope.new("shop.Charge", "shop.orders", b'{"customer":"ada"}', **options)


def test_e1_a_fresh_envelope() -> None:
    """E1: first attempt, no deferrals, ordinary priority, a new id and the time of now."""
    envelope, other = fresh(), fresh()
    assert (1, 0, 0, None) == (
        envelope.attempt,
        envelope.deferrals,
        envelope.priority,
        envelope.correlation_id,
    )
    assert ("shop.Charge", "shop.orders") == (envelope.job_type, envelope.queue)
    assert 4 == envelope.job_id.version
    assert envelope.job_id != other.job_id
    assert 1_700_000_000_000 < envelope.enqueued_at_ms <= time.time() * 1000
    assert b'{"customer":"ada"}' == bytes(envelope.payload)


@pytest.mark.parametrize("correlation_id", [None, "t-1", ""])
def test_e1_the_keys_on_the_wire(correlation_id: str | None) -> None:
    """E1: exactly these keys in this order; the correlation id only when there is one."""
    keys = ["job_id", "job_type", "queue", "attempt", "enqueued_at_ms", "deferrals", "priority"]
    keys += ["payload"] if correlation_id is None else ["correlation_id", "payload"]
    assert keys == list(json.loads(fresh(correlation_id=correlation_id).encode()))


def test_e1_the_bytes_on_the_wire() -> None:
    """E1: compact JSON, text as UTF-8 and not as escapes, the payload verbatim."""
    envelope = Envelope(
        job_id=JOB_ID,
        job_type='a"b',
        queue="schön",
        attempt=1,
        enqueued_at_ms=2**64 - 1,
        correlation_id="🙂\n",
        payload=msgspec.Raw(b'{ "a": 1 }'),
    )
    expected = (
        '{"job_id":"6f1c1f7e-2b0a-4f0e-9d4b-0d8f5f9c2a11","job_type":"a\\"b","queue":"schön",'
        '"attempt":1,"enqueued_at_ms":18446744073709551615,"deferrals":0,"priority":0,'
        '"correlation_id":"🙂\\n","payload":{ "a": 1 }}'
    )
    assert expected == envelope.encode().decode()


@pytest.mark.parametrize(
    ("name", "deferrals", "priority", "correlation_id"),
    [
        ("current", 1, 10, None),
        ("current-correlated", 1, 10, "t-1"),
        ("old-six-fields", 0, 0, None),
        ("old-0.3", 1, 10, None),
    ],
)
def test_e1_golden_bodies_decode(
    name: str, deferrals: int, priority: int, correlation_id: str | None
) -> None:
    """E1: bodies of every version decode, with defaults for what they do not have."""
    envelope = Envelope.decode((GOLDEN / f"{name}.json").read_bytes())
    assert (JOB_ID, "shop.Charge", "shop.orders", 2, 1_700_000_000_123) == (
        envelope.job_id,
        envelope.job_type,
        envelope.queue,
        envelope.attempt,
        envelope.enqueued_at_ms,
    )
    assert (deferrals, priority, correlation_id) == (
        envelope.deferrals,
        envelope.priority,
        envelope.correlation_id,
    )


@pytest.mark.parametrize("path", ACCEPTED, ids=lambda path: path.stem)
def test_e1_golden_bodies_round_trip(path: Path) -> None:
    """E1: what is decoded and encoded again is equal; a current body is the same to the byte."""
    original = path.read_bytes()
    envelope = Envelope.decode(original)
    assert envelope == Envelope.decode(envelope.encode())
    assert bytes(envelope.payload) in original
    if path.stem != "old-six-fields":
        assert original == envelope.encode()


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_dead_bodies_are_refused(path: Path) -> None:
    """What is no envelope is malformed, and nothing but that is raised."""
    with pytest.raises(MalformedEnvelope, match=r"^serialization error: \S"):
        Envelope.decode(path.read_bytes())


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field, values in WRONG.items() for value in values],
)
def test_fields_are_strict(field: str, value: object) -> None:
    """A field of another type, null, or out of its range makes the body malformed."""
    with pytest.raises(MalformedEnvelope, match=field):
        Envelope.decode(body(**{field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attempt", 2**32 - 1),
        ("attempt", 0),
        ("deferrals", 2**32 - 1),
        ("priority", 255),
        ("enqueued_at_ms", 0),
        ("enqueued_at_ms", 2**64 - 1),
        ("job_type", ""),
        ("correlation_id", "é"),
    ],
)
def test_fields_reach_their_bounds(field: str, value: object) -> None:
    """The least and the greatest values are accepted, and survive."""
    envelope = Envelope.decode(body(**{field: value}))
    assert value == getattr(Envelope.decode(envelope.encode()), field)


@pytest.mark.parametrize("payload", [None, True, 5, 2**80, "x", [1], {}, {"a": {"b": [None]}}])
def test_the_payload_is_any_json(payload: object) -> None:
    """Whether a payload fits its job is for the job type to say."""
    assert payload == json.loads(bytes(Envelope.decode(body(payload=payload)).payload))


def test_unknown_keys_are_ignored_and_a_null_correlation_id_is_none() -> None:
    """Fields of later versions do no harm, and null counts as absent."""
    envelope = Envelope.decode(body(later={"a": ["é"]}, correlation_id=None))
    assert envelope == Envelope.decode(body())
    assert b"correlation_id" not in envelope.encode()


def test_white_space_around_and_any_order_are_accepted() -> None:
    """Bodies of other programs need not look like ours."""
    spaced = json.dumps(dict(reversed(OLD.items())), indent=2)
    assert Envelope.decode(body()).job_id == Envelope.decode(f"\n{spaced}\n".encode()).job_id


def test_of_duplicate_keys_the_last_wins() -> None:
    """A key given twice is not refused; this pins which one counts."""
    twice = body().replace(b'"attempt": 2', b'"attempt": 2, "attempt": 3')
    assert 3 == Envelope.decode(twice).attempt


def test_hostile_nesting_leaves_the_stack_alone() -> None:
    """Refusing deep nesting does not depend on how deep the caller stands."""

    def deeper(level: int) -> None:
        if level:
            deeper(level - 1)
        else:
            with pytest.raises(MalformedEnvelope):
                Envelope.decode((GOLDEN / "refused-nesting.json").read_bytes())

    deeper(sys.getrecursionlimit() // 3)


def test_e2_copies() -> None:
    """E2: a deferral and a next attempt change what they must, and nothing else, in a copy."""
    first = fresh(correlation_id="t-1")
    before = first.encode()
    deferred = first.deferred(10)
    retried = deferred.next_attempt()
    assert [(1, 0, 0), (1, 1, 10), (2, 1, 0)] == [
        (one.attempt, one.deferrals, one.priority) for one in (first, deferred, retried)
    ]
    kept = {
        (one.job_id, one.job_type, one.queue, one.enqueued_at_ms, one.correlation_id)
        for one in (first, deferred, retried)
    }
    assert 1 == len(kept)
    assert bytes(first.payload) == bytes(deferred.payload) == bytes(retried.payload)
    assert before == first.encode()


def test_copies_of_a_decoded_envelope_encode() -> None:
    """A payload that is a view into a received body travels on, verbatim."""
    envelope = Envelope.decode(body()).next_attempt()
    assert {"customer": "ada"} == json.loads(envelope.encode())["payload"]


def test_counters_stay_within_their_range() -> None:
    """A hostile count is not counted into a body that nobody could decode."""
    full = Envelope.decode(body(attempt=2**32 - 1, deferrals=2**32 - 1))
    assert (2**32 - 1, 2**32 - 1) == (full.next_attempt().attempt, full.deferred(0).deferrals)


def test_the_correlation_id_can_be_set() -> None:
    """A copy with another correlation id, and without one."""
    envelope = fresh()
    assert "t-2" == envelope.with_correlation_id("t-2").correlation_id
    assert envelope == envelope.with_correlation_id("t-2").with_correlation_id(None)


@pytest.mark.parametrize("correlation_id", [5, b"t-1", ["t"]])
def test_a_correlation_id_is_text(correlation_id: Any) -> None:
    """What would be malformed on arrival is refused before it leaves."""
    with pytest.raises(SerializationError, match="correlation_id"):
        fresh(correlation_id=correlation_id)
    with pytest.raises(SerializationError, match="correlation_id"):
        fresh().with_correlation_id(correlation_id)


def test_a_lone_surrogate_is_a_serialization_error() -> None:
    """Text that is no UTF-8 is refused before anything is published."""
    with pytest.raises(SerializationError, match="surrogates"):
        fresh(correlation_id="\ud800").encode()


def test_time_and_priority_can_be_given() -> None:
    """Tests and producers choose the time and the level."""
    envelope = fresh(now_ms=5, priority=7)
    assert (5, 7) == (envelope.enqueued_at_ms, envelope.priority)


def test_an_envelope_is_frozen() -> None:
    """No field can be changed."""
    with pytest.raises(AttributeError):
        fresh().attempt = 2  # type: ignore[misc]


@given(
    job_type=TEXT,
    queue=TEXT,
    attempt=st.integers(0, 2**32 - 1),
    enqueued_at_ms=st.integers(0, 2**64 - 1),
    deferrals=st.integers(0, 2**32 - 1),
    priority=st.integers(0, 255),
    correlation_id=st.none() | TEXT,
    payload=st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
        max_leaves=8,
    ),
)
def test_any_envelope_round_trips(payload: object, **fields: Any) -> None:
    """Every envelope decodes to an equal one, and its body is what compact JSON is elsewhere."""
    raw = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    envelope = Envelope(job_id=JOB_ID, payload=msgspec.Raw(raw.encode()), **fields)
    assert envelope == Envelope.decode(envelope.encode())
    wire = {
        "job_id": str(JOB_ID),
        **{name: fields[name] for name in ("job_type", "queue", "attempt", "enqueued_at_ms")},
        **{name: fields[name] for name in ("deferrals", "priority", "correlation_id")},
        "payload": payload,
    }
    if fields["correlation_id"] is None:
        del wire["correlation_id"]
    assert wire == json.loads(envelope.encode())


@given(
    st.binary(max_size=64) | st.sampled_from([path.read_bytes() for path in ACCEPTED]), st.data()
)
def test_any_bytes_decode_or_are_malformed(blob: bytes, data: st.DataObject) -> None:
    """No body whatever raises anything but that it is malformed."""
    if blob:
        index = data.draw(st.integers(0, len(blob) - 1))
        blob = blob[:index] + data.draw(st.binary(max_size=2)) + blob[index + 1 :]
    with suppress(MalformedEnvelope):
        Envelope.decode(blob)
