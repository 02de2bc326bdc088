"""The publisher thread: every publish and declaration of one backend, for callers in any thread.

Callers hand over a call and wait for it; the thread dials when there is work, publishes over a
`Link`, and dials again when the connection was lost under unconfirmed work. It consumes nothing.
The bookkeeping is in `outbox.py`, the protocol in `link.py`.
"""

import functools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from weakref import WeakSet

import tenacity
from pika.connection import Parameters

from queuey_sync.backends.rabbitmq.dialling import Brokers, DialFailed, addresses
from queuey_sync.backends.rabbitmq.publishing.calls import Batch, Call, Declaration, Entry
from queuey_sync.backends.rabbitmq.publishing.link import Link
from queuey_sync.backends.rabbitmq.publishing.outbox import Declares, Outbox
from queuey_sync.backends.rabbitmq.topology import QueueDeclaration
from queuey_sync.durations import format_duration
from queuey_sync.errors import BackendError, BrokerUnavailable, QueueyError, ShutDown, Stopping
from queuey_sync.observe.escaping import one_line
from queuey_sync.retrying import sleep_until_stop, stop_when_stopping
from queuey_sync.shutdown import Shutdown

log = logging.getLogger(__name__)

_ABANDON_SECONDS = 3.0
"""How long `close` waits for the thread beyond the time limit of what is under way."""
_HASTY_SECONDS = 1.0
"""A connection that is lost sooner may have been lost over what it was to publish."""
_LONGEST_PAUSE = 2.0
"""Seconds between two dials."""

_publishers: "WeakSet[Publisher]" = WeakSet()
"""Those that a forked child must make anew. Guarded by the interpreter lock: one call each."""


@functools.cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_forget_inherited)


def _forget_inherited() -> None:
    for publisher in list(_publishers):
        publisher.forget_inherited()


class Publisher:
    """Publishes with confirms and declares, over a connection of its own. Use it from any thread.

    Args:
        brokers: Where to connect.
        limit: How long a call may go without any answer.
    """

    def __init__(self, brokers: Brokers, limit: timedelta) -> None:
        self._brokers = brokers
        self._limit = limit
        self._declared: dict[str, QueueDeclaration] = {}
        """What a broker that lost its queues is given again. Guarded by `_lock`."""
        self._closing = False
        """Set once. Guarded by `_lock`."""
        self._start_afresh()
        _publishers.add(self)
        _watch_forks()

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._inbox: deque[Call] = deque()
        """Calls that the thread has not seen yet. Guarded by `_lock`."""
        self._woken = False
        """Whether a wake is on its way to the thread. Guarded by `_lock`."""
        self._link: Link | None = None
        """The connection, from its dial on. Guarded by `_lock`."""
        self._thread: threading.Thread | None = None
        """Guarded by `_lock`."""
        self._idle = threading.Event()
        """Wakes the thread while it has no link."""
        self._shutdown = Shutdown()
        """Stopped by `close`: cuts the wait between two dials short."""
        self._outbox = Outbox()
        """Owner: the publisher thread."""
        self._declares = Declares()
        """Owner: the publisher thread."""
        self._connected_before = False
        """Owner: the publisher thread."""
        self._hasty_ends = 0
        """How many connections in a row were lost at once. Owner: the publisher thread."""
        self._trouble: str | None = None
        """Why there is no connection, after one failed. Written by the publisher thread."""

    def forget_inherited(self) -> None:
        """In a forked child: start afresh, and leave the parent's connection alone."""
        link = self._link
        self._start_afresh()
        if link is not None:
            link.close_socket()

    def publish(self, entries: Sequence[Entry]) -> dict[int, QueueyError]:
        """Publish all, and return the error of each one that the broker did not confirm, by index.

        Raises:
            ShutDown: The publisher is closed.
        """
        if not entries:
            return {}
        batch = Batch(entries)
        self._carry_out(batch)
        return batch.outcome(self._overdue("confirm"))

    def declare(self, queues: Sequence[QueueDeclaration]) -> tuple[int, QueueyError | None]:
        """Declare these queues in order; returns how many exist now, and why it ended early.

        Raises:
            ShutDown: The publisher is closed.
        """
        call = Declaration(queues)
        self._carry_out(call)
        landed = call.landed
        with self._lock:
            self._declared.update((queue.name, queue) for queue in queues[:landed])
        if landed < len(queues) and call.error is None:
            call.error = BrokerUnavailable(
                f"`{queues[landed].name}` was not declared: {self._overdue('answer')}"
            )
        return landed, call.error

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now; never dials."""
        link = self._link
        return link is not None and link.is_open

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing

    def close(self) -> None:
        """Let the calls under way end within their limits, then close. Idempotent, bounded."""
        with self._lock:
            self._closing = True
            self._shutdown.stop()
            self._wake()
            thread = self._thread
        if thread is not None:
            thread.join(self._limit.total_seconds() + _ABANDON_SECONDS)

    def _carry_out(self, call: Call) -> None:
        with self._lock:
            self._refuse_if_closed()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="queuey-publisher", daemon=True)
                thread.start()
                self._thread = thread
            self._inbox.append(call)
            self._wake()
        try:
            call.wait(self._limit)
        finally:
            if not call.finished:
                with self._lock:
                    self._wake()

    def _overdue(self, missing: str) -> str:
        link = self._link
        blocked = "it is low on memory or disk" if link is not None and link.is_blocked else None
        trouble = blocked or self._trouble
        where = addresses(self._brokers)
        text = f"no {missing} from {where} within {format_duration(self._limit)}"
        return f"{text} ({trouble.removeprefix(f'{where}: ')})" if trouble else text

    def _refuse_if_closed(self) -> None:
        if self._closing:
            raise ShutDown("the rabbitmq backend is closed")

    def _wake(self) -> None:
        """Have the thread look for work; one wake serves all that comes before it is served."""
        if self._woken:
            return
        self._woken = True
        if self._link is None:
            self._idle.set()
        else:
            self._link.wake()

    # The publisher thread

    def _run(self) -> None:
        while True:
            try:
                if not self._await_work():
                    return
                self._dial_and_serve()
            except Exception as error:
                log.exception("publishing to %s failed", addresses(self._brokers))
                self._crash(error)

    def _await_work(self) -> bool:
        """Sleep until somebody waits for something; False when that will never be."""
        while True:
            self._idle.clear()
            self._collect()
            if self._has_work():
                return True
            if self._closing:
                return False
            self._idle.wait()

    def _dial_and_serve(self) -> None:
        try:
            link = self._redial() if self._connected_before else self._dial()
        except DialFailed as error:
            text = str(error)
            self._abandon_all(lambda: BrokerUnavailable(text))
            return
        except Stopping:
            self._abandon_all(lambda: ShutDown("the rabbitmq backend is closed"))
            return
        self._connected_before = True
        began = time.monotonic()
        link.serve()
        hasty = time.monotonic() - began < _HASTY_SECONDS
        self._hasty_ends = self._hasty_ends + 1 if hasty else 0
        self._let_go(link)
        self._trouble = link.fault
        self._declares.ask(self._outbox.lost())
        self._declares.lost()
        if link.crash is not None:
            self._crash(link.crash)
        elif self._has_work():
            log.warning(
                "lost %s with publishes under way: %s",
                link.address,
                one_line(link.fault or ""),
            )

    def _redial(self) -> Link:
        """Dial until it succeeds, or nobody waits for it any more."""
        if self._hasty_ends:
            self._shutdown.watcher().sleep(min(0.2 * self._hasty_ends, _LONGEST_PAUSE))
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(DialFailed),
            wait=tenacity.wait_exponential(multiplier=0.1, max=_LONGEST_PAUSE)
            + tenacity.wait_random(0, 0.1),
            stop=self._gives_up,
            sleep=sleep_until_stop(self._shutdown.watcher()),
            reraise=True,
        )
        return retrying(self._dial)

    def _gives_up(self, state: tenacity.RetryCallState) -> bool:
        stop_when_stopping(self._shutdown.watcher())(state)
        self._collect()
        return not self._has_work()

    def _dial(self) -> Link:
        """Try each broker once; all of them together have the time of one call."""
        faults: list[str] = []
        for parameters in self._brokers:
            if faults and self._is_done():
                break
            try:
                return self._dial_one(parameters)
            except DialFailed as error:
                faults.append(str(error))
                self._trouble = "; ".join(faults)
        raise DialFailed(self._trouble)

    def _dial_one(self, parameters: Parameters) -> Link:
        link = Link(
            parameters,
            self._outbox,
            self._declares,
            collect=self._collect,
            may_close=self._is_done,
            replay=self._queues_to_replay(),
        )
        with self._lock:
            self._link = link
        try:
            link.open(self._limit / len(self._brokers))
        except BaseException:
            self._let_go(link)
            raise
        self._trouble = None
        return link

    def _queues_to_replay(self) -> Declaration | None:
        with self._lock:
            queues = list(self._declared.values()) if self._connected_before else []
        if not queues:
            return None
        replay = Declaration(queues, awaited=False)
        self._declares.add(replay, first=True)
        return replay

    def _let_go(self, link: Link) -> None:
        with self._lock:
            self._link = None
            self._woken = False
        link.discard()

    def _collect(self) -> None:
        with self._lock:
            self._woken = False
            calls, self._inbox = self._inbox, deque()
        for call in calls:
            if isinstance(call, Declaration):
                self._declares.add(call)
            elif isinstance(call, Batch):
                self._outbox.add(entry for entry in call.entries if entry.hold is None)
                self._declares.ask(call.entries)

    def _has_work(self) -> bool:
        return self._outbox.has_live() or bool(self._declares.calls())

    def _is_done(self) -> bool:
        return self._closing and not self._has_work()

    def _abandon_all(self, make_error: Callable[[], QueueyError]) -> None:
        self._collect()
        for call in {*self._outbox.calls(), *self._declares.calls()}:
            call.abandon(make_error)

    def _crash(self, error: Exception) -> None:
        """Fail what waits, and keep nothing of a state that cannot be relied on."""
        text = f"publishing failed: {error!r}"
        self._abandon_all(lambda: BackendError(text))
        self._outbox, self._declares = Outbox(), Declares()
