"""The table of ``queuey-sync queues``: what it says of counts that nobody knows, and how wide."""

from datetime import UTC, datetime, timedelta

import pytest

from queuey_sync.backends.base import Depth
from queuey_sync.cli.commands.queues import table

_NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def _held(held: int | None, due: timedelta | None = None) -> Depth:
    next_due = None if due is None else _NOW + due
    return Depth(ready=12, held=held, dead=3, consumers=2, next_due=next_due)


def _cells(found: dict[str, Depth]) -> list[list[str]]:
    """The lines without their headings, in words."""
    return [line.split(maxsplit=5) for line in table(found, _NOW, None)[1:]]


def test_figures_stand_under_their_headings() -> None:
    """Names begin, and figures end, where the headings do."""
    lines = table({"mail": _held(1, timedelta(seconds=5)), "a.longer.name": _held(0)}, _NOW, None)
    assert lines == [
        "queue          ready  held  dead  consumers  next due",
        "mail              12     1     3          2     in 5s",
        "a.longer.name     12     0     3          2         -",
        "total             24     1     6                in 5s",
    ]


def test_one_queue_has_no_total() -> None:
    """It would say the same."""
    assert [["mail", "12", "0", "3", "2", "-"]] == _cells({"mail": _held(0)})


def test_what_is_unknown_of_one_queue_is_unknown_in_total() -> None:
    """Never 0, and never the sum of the rest."""
    later = timedelta(hours=1)
    (_, known, unknown, total) = table({"a": _held(1, later), "b": _held(None)}, _NOW, None)
    assert ["a", "12", "1", "3", "2", "in", "1h", "0m"] == known.split()
    assert ["b", "12", "unknown", "3", "2", "unknown"] == unknown.split()
    assert ["total", "24", "unknown", "6", "unknown"] == total.split()


def test_held_without_a_time_is_due_at_an_unknown_one() -> None:
    """A backend may know the one and not the other."""
    assert [["mail", "12", "4", "3", "2", "unknown"]] == _cells({"mail": _held(4)})


def test_the_total_has_the_first_time_of_all() -> None:
    """Of the queues that hold anything."""
    found = {
        "a": _held(1, timedelta(minutes=5)),
        "b": _held(2, timedelta(minutes=4)),
        "c": _held(0),
    }
    assert table(found, _NOW, None)[-1].endswith("  in 4m 0s")


@pytest.mark.parametrize(
    ("due", "text"),
    [
        (timedelta(seconds=-3), "now"),
        (timedelta(0), "now"),
        (timedelta(milliseconds=1), "in 1s"),
        (timedelta(seconds=59), "in 59s"),
        (timedelta(seconds=59, milliseconds=1), "in 1m 0s"),
        (timedelta(seconds=260), "in 4m 20s"),
        (timedelta(hours=5, minutes=7, seconds=9), "in 5h 7m"),
        (timedelta(days=24, hours=20), "in 24d 20h"),
    ],
)
def test_a_time_is_told_in_its_two_largest_units(due: timedelta, text: str) -> None:
    """In whole seconds, rounded up: nothing is due before it says."""
    ((*_, shown),) = _cells({"mail": _held(1, due)})
    assert text == shown


@pytest.mark.parametrize("width", [80, 60])
def test_only_names_are_cut_and_only_if_they_must(width: int) -> None:
    """A line is no longer than the terminal is wide, and every figure is whole."""
    found = {"short": _held(10**9), "long-" * 20: _held(1, timedelta(seconds=260))}
    _, short, cut, _ = table(found, _NOW, width)
    assert {width} == {len(line) for line in table(found, _NOW, width)}
    assert ["short", "12", "1000000000", "3", "2", "unknown"] == short.split()
    assert cut.split()[0].endswith("...")
    assert cut.split()[1:] == ["12", "1", "3", "2", "in", "4m", "20s"]
    assert "long-" * 20 in table(found, _NOW, 200)[2]


def test_a_very_narrow_terminal_still_gets_the_beginning_of_names() -> None:
    """And lines that are longer than it is wide."""
    _, line = table({"shop.emails": _held(0)}, _NOW, 10)
    assert "shop.... " == line[:9]
