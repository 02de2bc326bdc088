"""`SQLiteBackend`: jobs wait in one file, for several processes of one machine.

It turns envelopes into rows, and wakes the consumers of this process when it has placed one. Read
next: `file.py` for how a transaction is made, `consumer.py` for how jobs come back.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Unpack

from queuey_sync.backends.base import Backend, Consumption, DeadQueue, Depth, Inbox, Listener
from queuey_sync.backends.sqlite import store
from queuey_sync.backends.sqlite.consumer import Consumer
from queuey_sync.backends.sqlite.dead import StoredDead
from queuey_sync.backends.sqlite.delivery import now_ms, placing
from queuey_sync.backends.sqlite.file import StoreFile
from queuey_sync.backends.sqlite.options import OptionKeywords, Options, read_url
from queuey_sync.backends.sqlite.presence import reap
from queuey_sync.backends.sqlite.schema import Database
from queuey_sync.envelope import Envelope
from queuey_sync.errors import PublishRefused, QueueyError, ShutDown
from queuey_sync.queues import QueueConfig
from queuey_sync.shutdown import Backoff

_LONGEST_BODY = 16 * 2**20
"""Bytes of one job."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


class SQLiteBackend(Backend):
    """Jobs wait in a SQLite file. It is opened, and made if need be, at the first use.

    All threads of a process share one connection. After a fork parent and child each make their
    own.

    Args:
        url: ``sqlite:///relative/path.db`` or ``sqlite:////absolute/path.db``; the options may
            follow after a ``?``. A relative path is taken from the folder that is the current one
            now. ``~`` is not expanded.
        **options: The fields of `Options`.

    Raises:
        ConfigurationError: The URL or an option cannot be used.

    >>> backend = SQLiteBackend("sqlite:////var/lib/shop/jobs.db?synchronous=full", lease="1m")
    >>> backend.path, backend.options.lease
    ('/var/lib/shop/jobs.db', '1m')
    """

    def __init__(self, url: str, **options: Unpack[OptionKeywords]) -> None:
        self._file = StoreFile(*read_url(url, options), self._declare_again)
        self._configs: dict[str, QueueConfig] = {}
        """By name, once declared. Guarded by the interpreter lock: one operation each."""
        self._closed = False  # written once
        self._consumers: set[Consumer] = set()
        """Those that are not closed. Guarded by the interpreter lock: one operation each."""

    @property
    def path(self) -> str:
        """The file."""
        return self._file.path

    @property
    def options(self) -> Options:
        """The options that it was made with."""
        return self._file.options

    def declare(self, configs: Sequence[QueueConfig]) -> None:
        """Enter these queues into the file; one that is there with other properties is refused."""
        self._refuse_if_closed()
        if configs:
            self._file.write(lambda db: store.declare(db, configs))
            self._configs |= {config.full_name: config for config in configs}

    def publish(self, envelope: Envelope, delay: timedelta | None = None) -> None:
        """Place an envelope, now or after `delay`; returns when it is committed."""
        self._refuse_if_closed()
        self._file.write_one(placing(envelope, _checked_body(envelope), delay))
        if self._consumers:
            self._wake_consumers()

    def defer(self, envelope: Envelope, delay: timedelta) -> None:
        """Hold an envelope for `delay`."""
        self.publish(envelope, delay)

    def publish_many(self, envelopes: Sequence[Envelope]) -> dict[int, QueueyError]:
        """Publish all that can be taken in one transaction; see `Backend.publish_many`."""
        self._refuse_if_closed()
        failures: dict[int, QueueyError] = {}
        bodies: dict[int, bytes] = {}
        for index, envelope in enumerate(envelopes):
            try:
                bodies[index] = _checked_body(envelope)
            except QueueyError as error:
                failures[index] = error

        def operation(db: Database) -> dict[int, QueueyError]:
            unroutable: dict[int, QueueyError] = {}
            jobs = []
            for index, body in bodies.items():
                envelope = envelopes[index]
                try:
                    queue = store.queue_to_publish(db, envelope.queue)
                except QueueyError as error:
                    unroutable[index] = error
                else:
                    jobs.append((queue, envelope.priority, body))
            store.place_all(db, jobs, now_ms())
            return unroutable

        try:
            failures |= self._file.write(operation)
        except QueueyError as error:
            failures |= dict.fromkeys(bodies, error)
        if self._consumers:
            self._wake_consumers()
        return dict(sorted(failures.items()))

    def consume(
        self,
        configs: Sequence[QueueConfig],
        inbox: Inbox,
        listener: Listener,
        reconnect: Backoff | None = None,  # noqa: ARG002 - there is no connection to lose
    ) -> Consumption:
        """Start a consumer thread; prefetch is that of the given configs, and 0 is unlimited."""
        consumer = Consumer(self._file, configs, inbox, listener, self._consumer_closed)
        self._consumers.add(consumer)
        if self._closed:
            consumer.refuse()
        else:
            consumer.start()
        return consumer

    def depths(self, configs: Sequence[QueueConfig]) -> list[Depth]:
        """What each of these queues holds, when what dead workers held waits again."""
        self._refuse_if_closed()
        if configs:
            self._file.check_exists()
        elif not self._file.exists():
            return []  # one that is to be made can be used
        names = [config.full_name for config in configs]
        reap(self._file)
        counts = self._file.read(
            lambda db: [store.count(db, store.queue_to_read(db, name), now_ms()) for name in names]
        )
        return [
            Depth(
                ready=each.ready,
                held=each.held,
                dead=each.dead,
                consumers=each.consumers,
                next_due=None if each.next_due_ms is None else _time(each.next_due_ms),
            )
            for each in counts
        ]

    def open_dead(self, config: QueueConfig) -> DeadQueue:
        """Look into the dead letters of a queue."""
        self._refuse_if_closed()
        self._file.check_exists()
        return StoredDead(self._file, config.full_name, self._wake_consumers)

    def close(self) -> None:
        """Let a transaction under way finish, then close; see `Backend.close`."""
        self._closed = True
        for consumer in self._own_consumers():
            consumer.backend_closed()
        self._close_file()

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _declare_again(self, db: Database) -> None:
        """For a file that was removed under a process which lives on, and is made anew."""
        missing = [
            config for name, config in self._configs.items() if not store.find_queue(db, name)
        ]
        if missing:
            db.execute("BEGIN IMMEDIATE")
            store.declare(db, missing)
            db.execute("COMMIT")

    def _consumer_closed(self, consumer: Consumer) -> None:
        self._consumers.discard(consumer)
        if self._closed:
            self._close_file()

    def _close_file(self) -> None:
        if not self._own_consumers():  # their jobs in hand can still be acked
            self._file.close()

    def _wake_consumers(self) -> None:
        for consumer in self._own_consumers():
            consumer.published()

    def _own_consumers(self) -> list[Consumer]:
        """Not those that a fork copied: nothing runs in them."""
        process = os.getpid()
        return [consumer for consumer in list(self._consumers) if consumer.process == process]

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ShutDown("the store is closed")


def _checked_body(envelope: Envelope) -> bytes:
    """The body, if it is not too long."""
    body = envelope.encode()
    if len(body) > _LONGEST_BODY:
        raise PublishRefused(
            f"a job for queue `{envelope.queue}` has {len(body)} bytes, and a store takes"
            f" {_LONGEST_BODY} at most: keep the bulk elsewhere, and enqueue where it is"
        )
    return body


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=min(ms, _LATEST_MS))
