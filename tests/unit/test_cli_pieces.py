"""The pure pieces of the command line: queue names, exit codes, passwords, log lines."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click
import pytest

from queuey_sync import Job, QueueSet, queue
from queuey_sync.cli.commands.enqueue import find_job_type
from queuey_sync.cli.exits import Exit, exit_for
from queuey_sync.cli.logs import Log, set_up_logging
from queuey_sync.cli.reporting import without_passwords
from queuey_sync.cli.working import select_queues
from queuey_sync.errors import (
    BackendError,
    BrokerUnavailable,
    ConfigurationError,
    ConsumerStopped,
    DuplicateHandler,
    PublishUnroutable,
    QueueyError,
    ShutDown,
    WorkerStuck,
)


class Queues(QueueSet, prefix="shop"):
    """Names of which one is the end of another."""

    MAIL = queue()
    FAST_MAIL = queue(name="fast.mail")
    IMAGES = queue(name="img")


class Others(QueueSet):
    """Another set."""

    A = queue()


class Resize(Job[Queues], queue=Queues.IMAGES, name="resize"):
    """A job."""


class Crop(Resize, queue=Queues.IMAGES, name="crop"):
    """A job that is based on another."""


class Foreign(Job[Others], queue=Others.A, name="foreign"):
    """A job of another set."""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("shop.mail", [Queues.MAIL]),
        ("img", [Queues.IMAGES]),
        (" img , shop.fast.mail", [Queues.IMAGES, Queues.FAST_MAIL]),
        ("fast.mail", [Queues.FAST_MAIL]),
    ],
)
def test_queues_are_named_with_or_without_the_prefix(names: str, expected: list[Queues]) -> None:
    """A full name always fits; the end of one does if it is the end of no other."""
    assert expected == select_queues(Queues, names)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("mail", "several queues are called 'mail'; choose from shop.mail, shop.fast.mail"),
        ("img,nope", "no queue 'nope'; choose from shop.mail, shop.fast.mail, shop.img"),
        ("mg", "no queue 'mg'"),
        ("", "no queue ''"),
        ("img,", "no queue ''"),
    ],
)
def test_names_that_fit_no_queue_are_refused(names: str, text: str) -> None:
    """The error says which names there are."""
    with pytest.raises(click.UsageError, match=text):
        select_queues(Queues, names)


@pytest.mark.parametrize("name", ["resize", "crop"])
def test_job_types_are_found_by_name(name: str) -> None:
    """Every job declared for the set is found, one that is based on another too."""
    assert name == find_job_type(Queues, name).name


def test_job_types_of_other_sets_are_not_found() -> None:
    """What another set has is unknown here."""
    with pytest.raises(click.UsageError, match="no job 'foreign'; choose from crop, resize"):
        find_job_type(Queues, "foreign")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), Exit.BAD_APP),
        (DuplicateHandler("x"), Exit.BAD_APP),
        (BackendError("x"), Exit.BROKER),
        (BrokerUnavailable("x"), Exit.BROKER),
        (PublishUnroutable("x"), Exit.BROKER),
        (ConsumerStopped("x"), Exit.BROKER),
        (WorkerStuck(2), Exit.STUCK),
        (ShutDown(), Exit.UNEXPECTED),
        (QueueyError("x"), Exit.UNEXPECTED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_codes_of_errors(error: QueueyError, code: Exit) -> None:
    """Each kind of error has its exit code."""
    assert code is exit_for(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp://ada:pw@mq:5672/v", "amqp://ada:…@mq:5672/v"),
        ("url='amqps://:p:w@mq', and more", "url='amqps://:…@mq', and more"),
        ("a p@ssword: amqp://mq:5672/ and ada@mq", "a p@ssword: amqp://mq:5672/ and ada@mq"),
    ],
)
def test_passwords_of_urls_are_left_out(text: str, expected: str) -> None:
    """Only the password goes."""
    assert expected == without_passwords(text)


@contextmanager
def _untouched_loggers() -> Iterator[tuple[logging.Logger, logging.Logger]]:
    """The root logger without handlers, and this library's; put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("queuey_sync")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    ours.setLevel(logging.NOTSET)
    yield root, ours
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_logging_is_set_up_where_nobody_did() -> None:
    """Without a set-up of the app all records go to one handler, from the level asked for on."""
    with _untouched_loggers() as (root, ours):
        assert set_up_logging(Log(level="DEBUG"))
        assert 1 == len(root.handlers)
        assert (logging.DEBUG, logging.DEBUG) == (root.level, ours.level)


@pytest.mark.parametrize(
    ("level", "apps_level", "expected"),
    [
        (None, logging.NOTSET, logging.INFO),
        (None, logging.ERROR, logging.ERROR),
        ("DEBUG", logging.ERROR, logging.DEBUG),
    ],
)
def test_the_set_up_of_an_app_is_kept(level: str | None, apps_level: int, expected: int) -> None:
    """Its handlers and its root level stay; this library's level changes only if asked for."""
    own = logging.NullHandler()
    with _untouched_loggers() as (root, ours):
        root.addHandler(own)
        ours.setLevel(apps_level)
        assert not set_up_logging(Log(level=level))
        assert [own] == root.handlers
        assert (logging.WARNING, expected) == (root.level, ours.level)
