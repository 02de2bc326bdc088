"""Tests of jobs: names, queues, fields, and the payload in both directions."""

import dataclasses
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from queuey_sync.errors import ConfigurationError
from queuey_sync.jobs import Job, job_type_of
from queuey_sync.queues import QueueSet
from queuey_sync.retry import RetryPolicy
from tests.support.shop import Address, Colour, Notify, Other, Shop, declare


class Charge(Job[Shop], queue=Shop.ORDERS):
    """A job with the name that it gets by default."""

    customer: str


def test_d1_names() -> None:
    """D1: the given name, else the module, a dot and the class."""
    assert "mail.send" == job_type_of(Notify).name
    assert f"{__name__}.Charge" == job_type_of(Charge).name


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": None}, "queue: .* it is missing"),
        ({"queue": "shop.orders"}, "queue: .* got 'shop.orders'"),
        ({"queue": Shop}, "queue: expected a member"),
        ({"queue": Colour.RED}, "queue: expected a member"),
        ({"queue": Other.ELSEWHERE}, "queue: Other.ELSEWHERE is no member of Shop"),
        ({"name": ""}, "name: "),
        ({"name": "   "}, "name: "),
        ({"name": 5}, "name: "),
        ({"name": "a\nb"}, "name: .* can be printed, got"),
        ({"name": None}, "name: .* in a function .* give name="),
        ({"retry": 3}, "retry: "),
        ({"quue": Shop.MAIL}, "unknown option 'quue'"),
        ({"frozen": False}, "unknown option 'frozen'"),
    ],
)
def test_d1_wrong_declarations_name_the_key(options: dict[str, Any], text: str) -> None:
    """D1: a wrong, missing or unknown class keyword is refused when the class is declared."""
    with pytest.raises(ConfigurationError, match=f"Declared: {text}"):
        declare(int, **options)


def test_d1_a_job_needs_a_queue() -> None:
    """D1: a class without queue= is refused."""
    with pytest.raises(ConfigurationError, match=r"queue: .* it is missing"):

        class Lost(Job[Shop], name="lost"):
            n: int


@pytest.mark.parametrize("main", ["__main__", "__mp_main__"])
def test_d1_main_has_no_name(main: str) -> None:
    """D1: a class of a script has no name that another process knows, so it must give one."""

    def fill(namespace: dict[str, Any]) -> None:
        namespace.update(__module__=main, __qualname__="Script", __annotations__={"n": int})

    with pytest.raises(ConfigurationError, match=r"job Script: name: .*__main__"):
        types.new_class("Script", (Job[Shop],), {"queue": Shop.ORDERS}, fill)
    named = types.new_class("Script", (Job[Shop],), {"queue": Shop.ORDERS, "name": "s"}, fill)
    assert "s" == job_type_of(named).name


def test_a_name_may_hold_blanks_inside() -> None:
    """Any text that is not blank is a name."""
    assert "send a mail" == job_type_of(declare(int, name="send a mail")).name


def test_the_policy_is_kept() -> None:
    """A job type knows its queue and its own policy, and None for none."""
    assert (Shop.MAIL, RetryPolicy.fixed(2, "5s")) == (
        job_type_of(Notify).queue,
        job_type_of(Notify("a")).retry,
    )
    assert job_type_of(Charge).retry is None


def test_generic_jobs_are_refused() -> None:
    """A payload of a type that is not settled cannot be decoded."""
    kind = TypeVar("kind")
    with pytest.raises(ConfigurationError, match="generic"):

        class Holder(Job[Shop], Generic[kind], queue=Shop.ORDERS, name="holder"):
            content: kind

    queues = TypeVar("queues", bound=QueueSet)
    with pytest.raises(ConfigurationError, match="generic"):

        class Open(Job[queues], queue=Shop.ORDERS, name="open"):
            n: int


def test_a_job_of_a_job_declares_itself() -> None:
    """A subclass of a job class inherits the fields, and gives queue= again."""
    with pytest.raises(ConfigurationError, match=r"queue: .* it is missing"):

        class Silent(Charge):
            cents: int

    with pytest.raises(ConfigurationError, match="no member of Shop"):

        class Foreign(Charge, **{"queue": Other.ELSEWHERE, "name": "foreign"}):
            cents: int

    class Refund(Charge, queue=Shop.MAIL, name="refund"):
        cents: int

    refund = Refund("ada", 5)
    assert b'{"customer":"ada","cents":5}' == job_type_of(refund).encode(refund)
    assert refund == job_type_of(Refund).decode(b'{"customer":"ada","cents":5}')
    assert Charge("ada") == job_type_of(Charge).decode(b'{"customer":"ada","cents":5}')
    assert ("refund", Shop.MAIL) == (job_type_of(Refund).name, job_type_of(Refund).queue)


def test_a_job_is_a_frozen_dataclass() -> None:
    """Jobs compare by value, show their fields, and cannot be changed."""
    job = Notify("ada", copies=2)
    assert Notify("ada", 2, None, []) == job
    assert "Notify(to='ada', copies=2, note=None, tags=[])" == repr(job)
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.to = "bob"  # type: ignore[misc]


@pytest.mark.parametrize(
    "annotation",
    [
        complex,
        Path,
        object,
        type,
        Callable[[int], int],
        list[Path],
        dict[str, list[Path]],
        Path | None,
        dict[tuple[int, int], str],
        dict[Address, str],
        Address | dict[str, int],
        dataclasses.InitVar[int],
        "Missing",
        list["Missing"],  # type: ignore[name-defined]  # noqa: F821
        "not a type",
    ],
    ids=repr,
)
def test_types_that_cannot_travel_are_refused(annotation: Any) -> None:
    """A field that could not be encoded or decoded is an error at declaration that names it."""
    with pytest.raises(ConfigurationError, match=r"job .*Declared: (field field|.*not a type)"):
        declare(annotation)


def test_a_type_that_is_not_defined_yet_says_what_to_do() -> None:
    """An annotation that cannot be resolved names the field, the type and the way out."""
    with pytest.raises(
        ConfigurationError, match=r"field field: name 'Missing' is not defined.* define them before"
    ):
        declare("Missing")


def test_a_mutable_default_is_refused() -> None:
    """A list shared by all jobs is refused, as in any dataclass."""
    with pytest.raises(ConfigurationError, match=r"field tags .*default_factory"):

        class Tagged(Job[Shop], queue=Shop.ORDERS, name="tagged"):
            tags: list[str] = []  # noqa: RUF012 - the mistake


def test_class_variables_are_no_fields() -> None:
    """A ClassVar may be of any type: it does not travel."""

    class Limited(Job[Shop], queue=Shop.ORDERS, name="limited"):
        limit: ClassVar[Path] = Path("/")
        n: int

    assert b'{"n":1}' == job_type_of(Limited).encode(Limited(1))


@pytest.mark.parametrize("thing", [Job, object(), 5, "Charge", int, None])
def test_job_type_of_refuses_what_is_no_job(thing: Any) -> None:
    """Anything but a job or a job class is refused with a text that shows it."""
    with pytest.raises(ConfigurationError, match="is no job"):
        job_type_of(thing)
