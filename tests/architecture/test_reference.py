"""The page of options says what the signatures say."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from queuey_sync import (
    Backoff,
    Job,
    MemoryBackend,
    ProcessPool,
    QueueSet,
    Queuey,
    RetryPolicy,
    Worker,
    connect,
    queue,
)
from queuey_sync.backends.rabbitmq.options import OptionKeywords, Options
from queuey_sync.backends.sqlite.options import OptionKeywords as SQLiteKeywords
from queuey_sync.backends.sqlite.options import Options as SQLiteOptions
from queuey_sync.contrib.flask import FlaskQueuey
from tests.support.source import ROOT

PAGE = ROOT / "docs" / "reference" / "options.md"

DOCUMENTED: dict[str, Callable[..., Any]] = {
    "QueueSet": QueueSet.__init_subclass__,
    "queue()": queue,
    "Job": Job.__init_subclass__,
    "RetryPolicy.fixed()": RetryPolicy.fixed,
    "RetryPolicy.exponential()": RetryPolicy.exponential,
    "Queuey": Queuey,
    "FlaskQueuey": FlaskQueuey,
    "Worker": Worker,
    "Worker.drain": Worker.drain,
    "ProcessPool()": ProcessPool,
    "connect()": connect,
    "RabbitMQ": Options,
    "SQLite": SQLiteOptions,
    "Memory": MemoryBackend,
    "Shutdown and Backoff": Backoff,
}

_REQUIRED = "*required*"
_ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<default>.+?) \|", re.MULTILINE)


def _sections() -> dict[str, str]:
    _, *sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    return {title: body for title, _, body in (section.partition("\n") for section in sections)}


def _documented(section: str) -> dict[str, object]:
    """The options of a section in their order, with the values of their defaults."""
    return {
        row["name"]: _REQUIRED
        if row["default"] == _REQUIRED
        else ast.literal_eval(row["default"].strip("`"))
        for row in _ROW.finditer(section)
    }


def _actual(target: Callable[..., Any]) -> dict[str, object]:
    return {
        parameter.name: _REQUIRED if parameter.default is parameter.empty else parameter.default
        for parameter in inspect.signature(target).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD and parameter.name != "self"
    }


def test_every_section_is_checked() -> None:
    """No section of the page stands without a signature to compare it with, and none is missing."""
    assert set(DOCUMENTED) == set(_sections())


@pytest.mark.parametrize("title", DOCUMENTED)
def test_options_and_defaults_are_those_of_the_code(title: str) -> None:
    """A section lists the options of its signature, in order and with the defaults."""
    actual = _actual(DOCUMENTED[title])
    if title == "Job":
        actual["queue"] = _REQUIRED  # its default is only there to be refused in our words
    documented = _documented(_sections()[title])
    assert list(actual.items()) == list(documented.items())


def test_a_documented_default_is_not_just_any_value() -> None:
    """A default that differs from the code's is seen."""
    section = _sections()["queue()"].replace("`16`", "`17`")
    assert _documented(section) != _actual(queue)


@pytest.mark.parametrize(
    ("options", "keywords"), [(Options, OptionKeywords), (SQLiteOptions, SQLiteKeywords)]
)
def test_keywords_of_a_backend_are_those_of_its_options(
    options: type[Options | SQLiteOptions], keywords: type
) -> None:
    """What type checkers are told of the keywords is what the options take."""
    fields = [field.name for field in dataclasses.fields(options)]
    assert fields == list(keywords.__annotations__)
