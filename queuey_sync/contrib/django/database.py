"""Database connections around jobs, as Django keeps them around requests; and a child's set-up.

Django has a connection for each thread and tidies up when a request begins and ends. A worker has
no requests, so this is done around each job. A job that runs in the thread of a request or a test
leaves their connections alone, but for a transaction that it has broken: that goes back to where it
was before the job.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import django
from django.apps import apps
from django.db import DatabaseError, connections, transaction

from queuey_sync.worker.inline import in_callers_thread

_log = logging.getLogger(__name__)


@contextmanager
def tidy_connections() -> Iterator[None]:
    """Close connections that are stale or too old, before a job and after it."""
    if in_callers_thread():
        with ExitStack() as lent:
            for connection in _connections():
                if connection.in_atomic_block and not connection.needs_rollback:
                    lent.enter_context(_kept_whole(connection))
            yield
        return
    for connection in _connections():
        connection.queries_log.clear()  # filled if settings.DEBUG
        connection.close_if_unusable_or_obsolete()
        # Asked for or not: a job that meets a dead connection would have lost an attempt, and it
        # costs nothing before the first query.
        connection.health_check_enabled = True
    try:
        yield
    finally:
        for connection in _connections():
            _tidy(connection)


def close_connections() -> None:
    """Close what this thread has open, at its end."""
    for connection in _connections():
        if not connection.in_atomic_block:
            connection.close()


def set_up_child() -> None:
    """Set Django up in a child process, before anything that may need it is imported."""
    if not apps.ready:
        django.setup()
    # Children are copies of one process: what an app opened there must not be shared.
    connections.close_all()


def _connections() -> Sequence[Any]:
    """Those of this thread; each a `BaseDatabaseWrapper`, whose stubs do not have all of it."""
    return connections.all(initialized_only=True)


@contextmanager
def _kept_whole(connection: Any) -> Iterator[None]:  # noqa: ANN401 - as above
    """A mark in the caller's transaction, to go back to if the job breaks it.

    A worker has no such transaction: what a job writes before it fails stays. So it does here,
    unless the database refuses all that follows.
    """
    block = transaction.atomic(using=connection.alias)
    block.__enter__()
    try:
        yield
    except DatabaseError:
        connection.needs_rollback = True
        raise
    finally:
        block.__exit__(None, None, None)  # rolls back if it must, else keeps what was written


def _tidy(connection: Any) -> None:  # noqa: ANN401 - as above
    try:
        if not connection.in_atomic_block:
            if connection.connection is not None:
                connection.connection.rollback()  # what began without Django, or without autocommit
            connection.close_if_unusable_or_obsolete()
            return
        # The job was interrupted on its way out of the block. The next one would be inside it, and
        # nothing that it does would ever be committed.
        connection.close()
    except Exception as error:  # noqa: BLE001 - whatever a driver raises is no fault of the job
        _log.warning("connection `%s` could not be tidied up: %s", connection.alias, error)
    del connections[connection.alias]  # a new one takes its place
