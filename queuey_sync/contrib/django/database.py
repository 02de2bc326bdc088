"""Database connections around jobs, as Django keeps them around requests; and a child's set-up.

Django has a connection for each thread and tidies up when a request begins and ends. A worker has
no requests, so this is done around each job. Connections inside an ``atomic`` block that began
before the job are left alone: they belong to whoever began it, such as a `TestCase`.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import django
from django.apps import apps
from django.db import connections

_log = logging.getLogger(__name__)


@contextmanager
def tidy_connections() -> Iterator[None]:
    """Close connections that are stale or too old, before a job and after it."""
    lent = {one.alias for one in _connections() if one.in_atomic_block}
    for connection in _connections():
        if connection.alias not in lent:
            connection.queries_log.clear()  # filled if settings.DEBUG
            connection.close_if_unusable_or_obsolete()
            # Asked for or not: a job that meets a dead connection would have lost an attempt, and
            # it costs nothing before the first query.
            connection.health_check_enabled = True
    try:
        yield
    finally:
        for connection in _connections():
            if connection.alias not in lent:
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


def _tidy(connection: Any) -> None:  # noqa: ANN401 - as below
    try:
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
            return
        # The job was interrupted on its way out of the block. The next one would be inside it, and
        # nothing that it does would ever be committed.
        connection.close()
    except Exception as error:  # noqa: BLE001 - whatever a driver raises is no fault of the job
        _log.warning("connection `%s` could not be tidied up: %s", connection.alias, error)
    del connections[connection.alias]  # a new one takes its place
