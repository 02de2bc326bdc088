"""Tests of queue sets: names, defaults, and every mistake that is refused when one is declared."""

import copy
import enum
import pickle
import re
import types
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_sync.errors import ConfigurationError
from queuey_sync.queues import QueueConfig, QueueSet, check_queue_set, queue, snake_case
from queuey_sync.retry import RetryPolicy

declare: Any = queue
"""The same, for what no type checker lets through."""


def make_set(name: str, members: Mapping[str, object], **options: Any) -> Any:
    """A set of these members and class keywords."""
    return types.new_class(name, (QueueSet,), options, lambda space: space.update(members))


class Shop(QueueSet, prefix="shop"):
    """A set with all ways of naming."""

    Emails = queue()
    SendEmails = queue()
    EMAIL_OUTBOX = queue()
    IMAGES = queue(name="img")


def one_queue(**options: Any) -> QueueConfig:
    """The config of the only queue of a set, declared with these options."""

    class Queues(QueueSet):
        ONLY = declare(**options)

    return Queues.ONLY.config


def test_a1_defaults() -> None:
    """A1: a queue without options has the documented defaults."""
    config = one_queue()
    assert QueueConfig("only", 16, True, None, 10, RetryPolicy.none()) == config
    assert QueueConfig("only") == config


def test_a2_names_and_order() -> None:
    """A2: names come from the members or from name=, behind the prefix, in declaration order."""
    expected = ["shop.emails", "shop.send_emails", "shop.email_outbox", "shop.img"]
    assert expected == [member.full_name for member in Shop]


def test_a2_without_prefix_there_is_no_dot() -> None:
    """A2: the name stands alone in a set without a prefix."""
    assert "only" == one_queue().full_name


@pytest.mark.parametrize(
    ("name", "found"), [("shop.img", Shop.IMAGES), ("img", None), ("IMAGES", None), ("", None)]
)
def test_a2_look_up_takes_the_full_name(name: str, found: Shop | None) -> None:
    """A2: the broker's name finds the member, anything else finds nothing."""
    assert found is Shop.by_name(name)


@pytest.mark.parametrize("blank", ["", "   ", 5, None])
def test_a4_blank_names_are_refused(blank: Any) -> None:
    """A4: a name must be text that is not blank; None means the member's own."""
    if blank is None:
        assert "only" == one_queue(name=None).full_name
    else:
        with pytest.raises(ConfigurationError, match="name"):
            one_queue(name=blank)


@pytest.mark.parametrize("prefix", ["", "  ", "shop.", 5])
def test_a4_bad_prefixes_are_refused(prefix: Any) -> None:
    """A4: a prefix must be text, not blank, and leaves the dot to us."""
    with pytest.raises(ConfigurationError, match="prefix"):

        class Queues(QueueSet, prefix=prefix):
            ONLY = queue()


def test_a5_names_must_differ() -> None:
    """A5: two members of one name are refused, and the text says which name."""
    with pytest.raises(ConfigurationError, match=re.escape("A and B both have the name `s.a`")):

        class Queues(QueueSet, prefix="s"):
            A = queue()
            B = queue(name="a")


@pytest.mark.parametrize(
    ("key", "good", "stored"),
    [
        ("prefetch", 1, 1),
        ("prefetch", 65535, 65535),
        ("max_priority", 0, None),
        ("max_priority", 1, 1),
        ("max_priority", 255, 255),
        ("message_ttl", "1ms", timedelta(milliseconds=1)),
        ("message_ttl", "4294967295ms", timedelta(milliseconds=2**32 - 1)),
        ("message_ttl", 1.5, timedelta(seconds=1.5)),
        ("message_ttl", None, None),
        ("durable", False, False),
        ("retry", RetryPolicy.fixed(2, "1s"), RetryPolicy.fixed(2, "1s")),
        ("retry", None, RetryPolicy.none()),
    ],
)
def test_a6_accepted(key: str, good: object, stored: object) -> None:
    """A6: values at the bounds are accepted, and read back from the config."""
    assert stored == getattr(one_queue(**{key: good}), key)


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("prefetch", 0),
        ("prefetch", -1),
        ("prefetch", 65536),
        ("prefetch", "10"),
        ("prefetch", True),
        ("prefetch", 1.0),
        ("prefetch", None),
        ("max_priority", 256),
        ("max_priority", -1),
        ("max_priority", "1"),
        ("max_priority", False),
        ("max_priority", None),
        ("message_ttl", "0ms"),
        ("message_ttl", "4294967296ms"),
        ("message_ttl", "50d"),
        ("message_ttl", "1x"),
        ("message_ttl", -1),
        ("message_ttl", True),
        ("message_ttl", []),
        ("message_ttl", timedelta(microseconds=999)),
        ("message_ttl", timedelta(milliseconds=2**32 - 1, microseconds=1)),
        ("durable", 1),
        ("retry", 3),
        ("retry", RetryPolicy),
    ],
)
def test_a6_refused(key: str, bad: object) -> None:
    """A6: values out of range, and of another type, are refused by name."""
    with pytest.raises(ConfigurationError, match=key):
        one_queue(**{key: bad})


def test_unknown_options_are_named() -> None:
    """An option that does not exist is refused by name, on a member and on a set."""
    with pytest.raises(ConfigurationError, match="'prefech'"):
        declare(prefech=3)
    with pytest.raises(ConfigurationError, match="Queues: unknown option 'prefixx'"):

        class Queues(QueueSet, prefixx="a"):
            ONLY = queue()


def test_options_on_the_wrong_level_say_where_they_belong() -> None:
    """A member's option on the set and the reverse are refused with the right place."""
    with pytest.raises(ConfigurationError, match=r"'prefix'.*\(QueueSet, prefix="):
        declare(prefix="a")
    with pytest.raises(ConfigurationError, match=r"'prefetch'.* belongs to a member"):

        class Queues(QueueSet, prefetch=3):
            ONLY = queue()


def test_equal_queues_are_no_aliases() -> None:
    """Members with equal options stay members of their own."""

    class Queues(QueueSet):
        A = queue()
        B = queue()

    assert ["a", "b"] == [member.full_name for member in Queues]
    assert 2 == len({id(member) for member in Queues})


def test_one_queue_cannot_serve_two_members() -> None:
    """The same queue() twice would silently make one queue of two names."""
    with pytest.raises(ConfigurationError, match="A and B share one"):

        class Queues(QueueSet):
            A = queue()
            B = A


@pytest.mark.parametrize("value", [5, "emails", QueueConfig("q"), None, enum.auto()])
def test_members_must_be_queues(value: object) -> None:
    """A member of another kind is refused by name."""
    with pytest.raises(ConfigurationError, match=r"Queues\.A: expected queue\(\.\.\.\)"):

        class Queues(QueueSet):
            A = value


def test_empty_sets_are_refused() -> None:
    """A set needs a queue."""
    with pytest.raises(ConfigurationError, match="at least one"):

        class Queues(QueueSet, prefix="a"):
            pass


@pytest.mark.parametrize("name", ["_", "__"])
def test_a_member_without_a_name_is_refused(name: str) -> None:
    """A member of underscores alone has no name, unless one is given."""
    with pytest.raises(ConfigurationError, match="name is empty"):
        make_set("Queues", {name: queue()})
    named = make_set("Queues", {name: queue(name="given")})
    assert ["given"] == [member.full_name for member in named]


@pytest.mark.parametrize("name", ["config", "full_name", "by_name"])
def test_members_do_not_hide_attributes(name: str) -> None:
    """A member named as an attribute of every set is refused, with the way out."""
    with pytest.raises(ConfigurationError, match=f"name='{name}'"):
        make_set("Queues", {name: queue()})


def test_a_set_may_have_methods() -> None:
    """Whatever an enum may hold beside its members is left alone."""

    class Queues(QueueSet):
        A = queue()

        def shout(self) -> str:
            return self.full_name.upper()

    assert (["A"], "A") == ([member.name for member in Queues], Queues.A.shout())


def test_members_show_their_names() -> None:
    """What a log or a debugger shows of a member is its two names."""
    assert "<Shop.IMAGES: shop.img>" == repr(Shop.IMAGES)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_members_survive_copying(duplicate: Callable[[Shop], Shop]) -> None:
    """A member stays itself when it is copied or sent to another process."""
    assert Shop.IMAGES is duplicate(Shop.IMAGES)


@pytest.mark.parametrize(
    ("member", "name"),
    [
        ("Emails", "emails"),
        ("SendEmails", "send_emails"),
        ("HTTPCalls", "http_calls"),
        ("HTTP", "http"),
        ("A", "a"),
        ("ImageResize2", "image_resize2"),
        ("Resize2xImages", "resize2x_images"),
        ("Already_Snake", "already_snake"),
        ("already_snake", "already_snake"),
        ("XMLHTTPRequest", "xmlhttp_request"),
        ("SEND_EMAILS", "send_emails"),
        ("__private__name", "private_name"),
        ("V2Api", "v2_api"),
        ("ÉtatCivil", "état_civil"),
        ("__", ""),
    ],
)
def test_snake_case(member: str, name: str) -> None:
    """Words begin at capital letters, and capitals in a row are one word."""
    assert name == snake_case(member)


@given(st.text(st.sampled_from("aBc_1É"), max_size=12))
def test_snake_case_keeps_the_letters(name: str) -> None:
    """Nothing is lost but underscores, none is doubled or leads, and twice is as good as once."""
    snake = snake_case(name)
    assert name.replace("_", "").lower() == snake.replace("_", "")
    assert "__" not in snake
    assert not snake.startswith("_")
    assert snake == snake_case(snake)


def test_configs_by_hand_are_not_checked() -> None:
    """Backends and tests may describe any queue; only a top level of 0 is stored as none."""
    assert 0 == QueueConfig("q", prefetch=0).prefetch
    config = QueueConfig("q", max_priority=0)
    assert (None, 0) == (config.max_priority, config.top_level)
    assert 10 == QueueConfig("q").top_level


@pytest.mark.parametrize("name", ["b\nERROR x", "b\x00", "b\ud800"])
@pytest.mark.parametrize(
    "make",
    [
        lambda name: make_set("Odd", {"A": queue(name=name)}),
        lambda name: make_set("Odd", {"A": queue()}, prefix=name),
        lambda name: make_set("Odd", {name: queue()}),
    ],
)
def test_names_that_cannot_be_printed_are_refused(make: Callable[[str], object], name: str) -> None:
    """A broker would change such a name, or a log would be forged by it."""
    with pytest.raises(ConfigurationError, match=r"(name|prefix): .* can be printed"):
        make(name)


def test_a_name_leaves_room_for_the_names_derived_from_it() -> None:
    """AMQP holds 255 bytes, and the longest hold queue needs 20 of them; bytes count."""
    assert ["q" * 235] == [one.full_name for one in make_set("Long", {"A": queue(name="q" * 235)})]
    for name, prefix in [("q" * 236, None), ("q" * 200, "p" * 35), ("é" * 118, None)]:
        with pytest.raises(
            ConfigurationError, match=r"Long\.A: name: .* 23[56] bytes.* 235 .*name="
        ):
            make_set("Long", {"A": queue(name=name)}, prefix=prefix)


@pytest.mark.parametrize(
    ("member", "prefix"), [(queue(name="amq.rpc"), None), (queue(), "amq"), (queue(), "amq.x")]
)
def test_names_of_the_broker_itself_are_refused(member: object, prefix: str | None) -> None:
    """What begins with `amq.` is the broker's; other names with these letters are not."""
    with pytest.raises(ConfigurationError, match=r"Queues\.A: name: .* `amq\.`.*reserved"):
        make_set("Queues", {"A": member}, prefix=prefix)
    assert "amqp" == make_set("Queues", {"A": queue(name="amqp")}).A.full_name


@pytest.mark.parametrize("taken", ["a.dead", "a.deferred.1000", "a.deferred.0"])
def test_no_queue_has_the_name_of_anothers_dead_or_hold_queue(taken: str) -> None:
    """Two queues would be one on the broker; the text names both members and the way out."""
    for members in ({"A": queue(), "B": queue(name=taken)}, {"B": queue(name=taken), "A": queue()}):
        text = rf"Queues\.B: name: `s\.{re.escape(taken)}` .* of Queues\.A.* another name="
        with pytest.raises(ConfigurationError, match=text):
            make_set("Queues", members, prefix="s")


@pytest.mark.parametrize("free", ["a.dead.x", "a.deferred", "a.deferred.1s", "b.dead", "ab.dead"])
def test_names_that_only_look_derived_are_free(free: str) -> None:
    """Nothing is refused that no other member's queue can be."""
    assert ["a", free] == [
        one.full_name for one in make_set("Queues", {"A": queue(), "B": queue(name=free)})
    ]


@pytest.mark.parametrize("wrong", [3, "Shop", None, Shop.IMAGES, QueueSet, int])
def test_what_is_no_queue_set_is_refused(wrong: object) -> None:
    """Whoever takes a queue set refuses other things by the name of the argument."""
    check_queue_set(Shop, "queues")
    with pytest.raises(ConfigurationError, match=r"^queues: expected a queue set"):
        check_queue_set(wrong, "queues")


def test_the_kind_of_a_set_is_that_of_its_members() -> None:
    """A member that gives its own has its own."""

    class Kinds(QueueSet, kind="quorum"):
        ONE = queue()
        TWO = queue(kind="classic", max_priority=3, durable=False)

    assert ["quorum", "classic"] == [member.config.kind for member in Kinds]
    assert 10 == Kinds.ONE.config.top_level


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_priority": 5}, r"max_priority: a quorum queue has two levels"),
        ({"max_priority": 0}, r"max_priority: a quorum queue has two levels"),
        ({"durable": False}, r"durable: a quorum queue is always durable"),
        ({"name": "n" * 229}, r"at most 228 leave room"),
    ],
)
def test_what_a_quorum_queue_cannot_be_is_refused(options: Any, text: str) -> None:
    """By the class that declares it, with the member's name."""
    with pytest.raises(ConfigurationError, match=r"Kinds\.ONE: .*" + text):

        class Kinds(QueueSet):
            ONE = queue(kind="quorum", **options)


@pytest.mark.parametrize("kind", ["stream", "", None, 1])
def test_an_unknown_kind_is_refused(kind: Any) -> None:
    """For a set and for a member."""
    with pytest.raises(ConfigurationError, match="kind: expected 'classic' or 'quorum', got"):

        class Kinds(QueueSet, kind=kind):
            ONE = queue()

    if kind is not None:
        with pytest.raises(ConfigurationError, match="kind: expected 'classic' or 'quorum', got"):
            queue(kind=kind)
