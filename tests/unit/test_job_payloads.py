"""Tests of the payload of jobs, in both directions: strict, exact, and nothing lost on the way."""

import math
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_sync.errors import SerializationError
from queuey_sync.jobs import Job, job_type_of
from tests.support.shop import Address, Colour, Notify, Shop, declare


class Free(Job[Shop], queue=Shop.ORDERS):
    """A job that carries anything."""

    value: Any


@pytest.mark.parametrize(
    ("annotation", "value", "payload"),
    [
        (int, 2**64 - 1, b"18446744073709551615"),
        (int, -(2**80), b"-1208925819614629174706176"),
        (float, 1.5, b"1.5"),
        (bool, True, b"true"),
        (str, "Zoë 🙂\0", '"Zoë 🙂\\u0000"'.encode()),
        (bytes, b"\xff\x00", b'"/wA="'),
        (str | None, None, b"null"),
        (tuple[int, str], (1, "a"), b'[1,"a"]'),
        (dict[int, str], {1: "a"}, b'{"1":"a"}'),
        (Colour, Colour.RED, b'"red"'),
        (uuid.UUID, uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        (datetime, datetime(2024, 1, 2, tzinfo=UTC), b'"2024-01-02T00:00:00Z"'),
        (Decimal, Decimal("0.10"), b'"0.10"'),
        (
            Address,
            Address("a", Address("b")),
            b'{"street":"a","before":{"street":"b","before":null}}',
        ),
        (Any, {"a": [1, None, 2.5]}, b'{"a":[1,null,2.5]}'),
        (Annotated[int, msgspec.Meta(ge=1)], 1, b"1"),
    ],
    ids=repr,
)
def test_payloads_round_trip(annotation: Any, value: Any, payload: bytes) -> None:
    """The JSON is compact UTF-8, and gives the same job back."""
    job = declare(annotation)(value)
    job_type = job_type_of(job)
    assert b'{"field":' + payload + b"}" == job_type.encode(job)
    assert job == job_type.decode(job_type.encode(job))


@given(st.text(), st.integers(), st.none() | st.text(), st.lists(st.text()))
def test_every_encodable_job_comes_back(
    to: str, copies: int, note: str | None, tags: list[str]
) -> None:
    """What can be encoded decodes to an equal job."""
    job = Notify(to, copies, note, tags)
    assert job == job_type_of(job).decode(job_type_of(job).encode(job))


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        [1, [2, {"a": (math.nan,)}]],
        {"a": {math.inf}},
        {math.nan: 1},
        {-math.inf: 1},
        Address(math.nan),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_numbers_that_are_not_finite_are_refused(value: object) -> None:
    """NaN and the infinities, which would travel as null, are refused at any depth."""
    with pytest.raises(SerializationError, match=r"Free`: -?(nan|inf) is no JSON number"):
        job_type_of(Free).encode(Free(value))


@pytest.mark.parametrize("value", [None, "null", "nan", {"nan": None, "inf": "null"}, [1e308]])
def test_what_only_looks_like_them_is_accepted(value: object) -> None:
    """Null, and text with such words, are JSON as good as any."""
    assert Free(value) == job_type_of(Free).decode(job_type_of(Free).encode(Free(value)))


def cycle() -> list[Any]:
    """A list that holds itself."""
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    "value", ["\ud800", {"\udfff": 1}, object(), Path("/"), 1j, cycle()], ids=type
)
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    """A lone surrogate, an object of another type and a ring are serialization errors."""
    with pytest.raises(SerializationError, match=r"^serialization error: job `.*Free`: "):
        job_type_of(Free).encode(Free(value))


@pytest.mark.parametrize(
    "payload",
    [
        b'{"to":1}',
        b'{"to":null}',
        b'{"to":"a","copies":"2"}',
        b'{"to":"a","copies":2.0}',
        b'{"to":"a","copies":true}',
        b'{"to":"a","tags":"x"}',
        b'{"copies":2}',
        b"{}",
        b"[]",
        b"null",
        b"",
        b'{"to":"a"',
        b'{"to":"a"} x',
        b'{"to":"\xff"}',
        b'{"to":"\\ud800"}',
        b'{"to":"a","note":NaN}',
    ],
)
def test_payloads_are_strict(payload: bytes) -> None:
    """No coercion, nothing missing, nothing but JSON; the error has the one prefix."""
    with pytest.raises(SerializationError, match=r"^serialization error: \S"):
        job_type_of(Notify).decode(payload)


def test_unknown_keys_are_ignored_and_defaults_filled_in() -> None:
    """A worker that is older than the producer reads what it knows; one that is newer, the rest."""
    assert Notify("a") == job_type_of(Notify).decode(b'{"colour":{"x":[1]},"to":"a"}')


def test_of_duplicate_keys_the_last_wins() -> None:
    """A key given twice is not refused; this pins which one counts."""
    assert Notify("b") == job_type_of(Notify).decode(b'{"to":"a","to":"b"}')


def test_a_raw_payload_decodes() -> None:
    """The payload of an envelope is decoded without a copy."""
    assert Free("ada") == job_type_of(Free).decode(msgspec.Raw(b'{"value":"ada"}'))


def test_deep_nesting_is_a_serialization_error() -> None:
    """Nesting that exhausts the stack is no crash, in either direction."""
    deep = b"[" * 5000 + b"]" * 5000
    with pytest.raises(SerializationError):
        job_type_of(Free).decode(b'{"value":' + deep + b"}")
    value: list[Any] = []
    for _ in range(sys.getrecursionlimit() * 2):
        value = [value]
    with pytest.raises(SerializationError):
        job_type_of(Free).encode(Free(value))


@pytest.mark.parametrize("error", [ValueError("odd"), TypeError("odd"), KeyError("odd"), OSError()])
def test_a_class_may_refuse_values(error: Exception) -> None:
    """Whatever __post_init__ raises while decoding is a serialization error with a text."""

    class Picky(Job[Shop], queue=Shop.ORDERS, name="picky"):
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise error

    assert Picky(2) == job_type_of(Picky).decode(b'{"n":2}')
    with pytest.raises(SerializationError, match=r"odd|OSError"):
        job_type_of(Picky).decode(b'{"n":1}')


def test_a_decoded_job_is_encoded_with_its_defaults() -> None:
    """What another program sees of a job does not depend on how the job was made."""
    job_type = job_type_of(Notify)
    decoded = job_type.decode(b'{"to":"ada"}')
    assert Notify("ada") == decoded
    assert job_type.encode(Notify("ada")) == job_type.encode(decoded)
    assert b'{"to":"ada","copies":1,"note":null,"tags":[]}' == job_type.encode(decoded)


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (lambda: Notify(3), "to"),  # type: ignore[arg-type]
        (lambda: Notify("a", copies="2"), "copies"),  # type: ignore[arg-type]
        (lambda: Notify("a", tags=[1]), r"tags\[0\]"),  # type: ignore[list-item]
        (lambda: declare(Annotated[int, msgspec.Meta(ge=1)])(0), "field"),
    ],
)
def test_a_job_that_its_own_class_cannot_read_is_not_encoded(
    job: Callable[[], Job[Any]], field: str
) -> None:
    """A wrong type is an error where the job is enqueued, and names the job and the field."""
    made = job()
    name = job_type_of(made).name
    with pytest.raises(SerializationError, match=rf"job `{name}`: Expected .* at `\$\.{field}`"):
        job_type_of(made).encode(made)


def test_a_value_of_a_type_that_json_holds_alike_is_encoded() -> None:
    """What comes back as the declared type is right, whatever it was before."""
    for annotation, value in [(float, 1), (tuple[int, ...], [1]), (list[str], ("a",))]:
        made = declare(annotation)(value)
        came_back = job_type_of(made).decode(job_type_of(made).encode(made))
        assert type(made) is type(came_back)
