"""`ProcessPool`: its options, how many children there are, and what no child can be given."""

import errno
import functools
import os
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from queuey_sync import ConfigurationError, Handlers, Job, MemoryBackend, ProcessPool, Worker
from queuey_sync.errors import StartError
from tests.support.shop import Charge, Shop


def _own(function: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(function)
    def call(job: Any) -> None:
        function(job)

    return call


def _bare(_: Any) -> None: ...


class Locked:
    """A handler that holds what belongs to one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def handle(self, _: Any) -> None: ...


def _nested() -> Callable[[Any], None]:
    def nested(_: Any) -> None: ...

    return nested


def _local_job() -> type[Job[Shop]]:
    class Local(Job[Shop], queue=Shop.MAIL, name="shop.Local"):
        n: int

    return Local


def _handlers(job: type[Job[Shop]] = Charge, handler: Any = None) -> Handlers[Shop]:
    handlers = Handlers(Shop)
    handlers.register(job, handler or _bare)
    return handlers


@pytest.mark.parametrize(
    ("handler", "name", "reason"),
    [
        (lambda _: None, r"<lambda>", "pickle"),
        (_nested(), r"_nested\.<locals>\.nested", "local object"),
        (Locked(), "Locked", "lock"),
        (Locked().handle, r"Locked\.handle", "lock"),
        (_own(_bare), "_bare", "not the same object"),
    ],
    ids=["lambda", "nested", "lock", "method", "decorated copy"],
)
def test_a_handler_that_cannot_be_sent_is_refused(handler: Any, name: str, reason: str) -> None:
    """The error names the job, the handler and why, and no queue was declared; threads take it."""
    backend, handlers = MemoryBackend(), _handlers(handler=handler)
    expected = rf"job `shop\.Charge`: {name} cannot be sent .*{reason}.*top level of a module"
    with pytest.raises(ConfigurationError, match=expected):
        Worker(backend, Shop, handlers=handlers, pool="process")
    assert [] == backend.queue_names()
    Worker(backend, Shop, handlers=handlers)


def test_a_job_class_that_cannot_be_sent_is_refused() -> None:
    """A child cannot import a class of a function, though its handler can be sent."""
    handlers = _handlers(_local_job())
    with pytest.raises(ConfigurationError, match=r"job `shop\.Local`: .*Local cannot be sent"):
        Worker(MemoryBackend(), Shop, handlers=handlers, pool="process")


def test_what_goes_around_and_before_the_handlers_must_be_sent_too() -> None:
    """An `around`, an `on_start` and an initializer are refused by name."""

    def local() -> AbstractContextManager[object]:
        return nullcontext()

    around, on_start = _handlers(), _handlers()
    around.around(local)
    on_start.on_start(local)
    for what, handlers in (("around", around), ("on_start", on_start)):
        with pytest.raises(ConfigurationError, match=rf"^{what}: .*local cannot be sent"):
            ProcessPool()(handlers)
    with pytest.raises(ConfigurationError, match=r"^initializer: .*local cannot be sent"):
        ProcessPool(initializer=local)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("start_method", "fork"),
        ("max_jobs_per_child", 0),
        ("max_jobs_per_child", "3"),
        ("max_memory_per_child", -1),
        ("child_memory_limit", 0.5),
        ("child_memory_limit", True),
    ],
)
def test_wrong_options_are_refused(option: str, value: Any) -> None:
    """Each refusal names the option."""
    with pytest.raises(ConfigurationError, match=option):
        ProcessPool(**{option: value})


def test_an_unknown_pool_is_refused() -> None:
    """The error tells what there is."""
    pool: Any = "greenlet"
    with pytest.raises(ConfigurationError, match="thread, process or a ProcessPool"):
        Worker(MemoryBackend(), Shop, handlers=Handlers(Shop), pool=pool)


@pytest.mark.parametrize(("processors", "expected"), [(1, 1), (3, 3), (64, 32)])
def test_there_are_no_more_children_than_usable_processors(
    monkeypatch: pytest.MonkeyPatch, processors: int, expected: int
) -> None:
    """Nor more than the prefetches of the queues allow, which are 16 each here."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    worker = Worker(MemoryBackend(), Shop, handlers=Handlers(Shop), pool="process")
    assert expected == worker.concurrency


def test_without_descriptors_there_is_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a child cannot start for is the one error that ends a worker."""

    def refuse() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    slot = ProcessPool()(_handlers()).slot()
    monkeypatch.setattr(socket, "socketpair", refuse)
    with pytest.raises(StartError, match=r"could not start: OSError: .* Too many open files"):
        slot.ready()
    slot.close()
