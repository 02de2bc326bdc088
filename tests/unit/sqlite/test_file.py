"""One connection for all threads: transactions together, faults, interrupts, and the end of it."""

import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from queuey_sync.backends.sqlite.file import StoreFile
from queuey_sync.backends.sqlite.schema import Database
from queuey_sync.errors import PublishUnroutable, ShutDown
from tests.contract.adapters import envelope
from tests.support.waiting import eventually
from tests.unit.sqlite.conftest import QUEUE, Store


def in_threads(*calls: Callable[[], object]) -> list[object]:
    """What each call gives or raises, made at the same time."""
    answers: list[object] = [None] * len(calls)

    def run(index: int, call: Callable[[], object]) -> None:
        try:
            answers[index] = call()
        except BaseException as error:
            answers[index] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def while_writing(
    file: StoreFile, own: Callable[[Database], object], *others: Callable[[Database], object]
) -> list[object]:
    """Have one thread in a transaction until the others wait behind it; what each of them gets."""
    begun = threading.Event()

    def first(db: Database) -> object:
        begun.set()
        eventually(lambda: len(file._waiting) == len(others))
        return own(db)

    def after(operation: Callable[[Database], object]) -> Callable[[], object]:
        def call() -> object:
            begun.wait()
            return file.write(operation)

        return call

    return in_threads(lambda: file.write(first), *map(after, others))


def insert(name: str) -> Callable[[Database], object]:
    """What enters a queue; gives how many transactions this connection has begun."""

    def operation(db: Database) -> object:
        db.execute("INSERT INTO queues (name, durable) VALUES (?, 1)", (name,))
        return db.execute("SELECT count(*) FROM queues").fetchone()[0]

    return operation


def refuse(_: Database) -> object:
    """Change nothing, and say why."""
    raise PublishUnroutable("no such queue")


def test_who_waits_is_committed_together(store: Store) -> None:
    """Behind a transaction under way, all others make one, and each gets its own answer."""
    file = store.backend()._file
    commits: list[str] = []
    file._db.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)  # type: ignore[union-attr]
    answers = while_writing(file, insert("a"), insert("b"), insert("c"), refuse, insert("d"))
    assert 2 == answers[0]
    assert isinstance(answers[3], PublishUnroutable)
    assert {3, 4, 5} == {answers[1], answers[2], answers[4]}
    assert 2 == len(commits)


def test_publishes_that_wait_are_committed_together(store: Store) -> None:
    """Many threads that enqueue cost few commits."""
    backend = store.backend()
    file = backend._file
    commits: list[str] = []
    file._db.set_trace_callback(commits.append)  # type: ignore[union-attr]
    begun = threading.Event()

    def first(_: Database) -> None:
        begun.set()
        eventually(lambda: len(file._waiting) == 5)

    def publish() -> None:
        begun.wait()
        backend.publish(envelope(QUEUE))

    assert [None] * 6 == in_threads(lambda: file.write(first), *[publish] * 5)
    assert 2 == commits.count("COMMIT")
    assert backend.depths([QUEUE])[0].ready == 5


def test_an_interrupt_costs_nobody_else(store: Store) -> None:
    """Whoever is cut short while it commits for others loses its own part alone."""
    file = store.backend()._file
    interrupts = iter([KeyboardInterrupt()])

    def interrupted_once(name: str) -> Callable[[Database], object]:
        def operation(db: Database) -> object:
            insert(name)(db)
            for interrupt in interrupts:
                raise interrupt
            return name

        return operation

    names = ["a", "b", "c"]
    answers = while_writing(file, insert("first"), *map(interrupted_once, names))
    lost = [name for name, answer in zip(names, answers[1:], strict=True) if answer != name]
    assert len(lost) == 1
    kept = sorted({"first", "q", *names} - set(lost))
    assert [(name,) for name in kept] == store.sql("SELECT name FROM queues ORDER BY name")


def test_an_interrupt_after_the_commit_repeats_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed for others is done, also when that is the last thing a thread did."""
    file = store.backend()._file
    interrupts = iter([None, KeyboardInterrupt()])

    def execute(db: Database, *arguments: str) -> sqlite3.Cursor:
        cursor = sqlite3.Connection.execute(db, *arguments)
        if arguments == ("COMMIT",):
            for interrupt in interrupts:
                if interrupt is None:  # of the transaction that the others wait for
                    break
                raise interrupt
        return cursor

    monkeypatch.setattr(Database, "execute", execute, raising=False)
    answers = while_writing(file, insert("first"), insert("a"), insert("b"), insert("c"))
    assert [KeyboardInterrupt] == [type(each) for each in answers if not isinstance(each, int)]
    assert 5 == len(store.sql("SELECT name FROM queues"))


def test_a_close_while_others_publish(store: Store) -> None:
    """Each publish is either taken or told that the store is closed."""
    backend = store.backend()
    outcomes: SimpleQueue[Exception | None] = SimpleQueue()

    def publish() -> None:
        for number in range(200):
            try:
                backend.publish(envelope(QUEUE, number))
                outcomes.put(None)
            except Exception as error:
                outcomes.put(error)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: outcomes.qsize() > 50)
    backend.close()
    for thread in threads:
        thread.join()
    assert backend._file._db is None
    results = [outcomes.get() for _ in range(800)]
    assert {"NoneType", "ShutDown"} >= {type(result).__name__ for result in results}
    assert store.backend().depths([QUEUE])[0].ready == results.count(None)


def test_nothing_is_opened_after_the_close(store: Store) -> None:
    """A write that was on its way when the store was closed does not open it again."""
    backend = store.backend()
    backend.close()
    with pytest.raises(ShutDown):
        backend._file.write(insert("late"))
    assert backend._file._db is None
