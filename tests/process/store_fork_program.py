"""A program that forks while it uses a store: in threads, in a worker, with a job in hand."""

import os
import sys
import threading
from queue import SimpleQueue
from typing import NoReturn

from queuey_sync.backends.base import Delivery, Inbox
from queuey_sync.backends.sqlite.backend import SQLiteBackend
from queuey_sync.envelope import Envelope
from queuey_sync.errors import QueueyError, SettleError
from queuey_sync.queues import QueueConfig

JOBS = 100
CHILDREN = 6
OUT = QueueConfig("out")
IN = QueueConfig("in")


def fail(text: str) -> NoReturn:
    """End this process, from whatever thread."""
    sys.stderr.write(text)
    sys.stderr.flush()
    os._exit(3)


class Listener:
    """Ends the program when something goes wrong."""

    def ended(self, error: QueueyError) -> None:
        fail(f"ended: {error}")

    def redelivers(self, queue: str) -> None:
        """There is no connection to lose."""

    def settle_failed(self, delivery: Delivery, error: Exception) -> None:
        fail(f"settle failed: {error}")


def enqueue(backend: SQLiteBackend, label: str) -> None:
    """Enqueue jobs that can be told from those of other processes."""
    for number in range(JOBS):
        backend.publish(Envelope.new("test.Out", "out", f'"{label}-{number}"'.encode()))


def child(backend: SQLiteBackend, delivery: Delivery, number: int) -> None:
    """What a child does: enqueue, look, and fail to settle what is its parent's."""
    enqueue(backend, f"child{number}")
    backend.depths([OUT])
    for call in (delivery.ack, lambda: delivery.dead_letter("never")):
        try:
            call()
        except SettleError:
            continue
        fail("a child has settled what is its parent's")
    backend.close()


def main(url: str) -> None:
    """Fork now and then while others enqueue, and then settle."""
    backend = SQLiteBackend(url)
    backend.declare([OUT, IN])
    backend.publish(Envelope.new("test.In", "in", b"{}"))
    inbox: Inbox = SimpleQueue()
    consumption = backend.consume([IN], inbox, Listener())
    delivery = inbox.get(timeout=10)
    assert delivery is not None
    threads = [
        threading.Thread(target=enqueue, args=(backend, f"thread{number}")) for number in range(3)
    ]
    for thread in threads:
        thread.start()
    children = []
    for number in range(CHILDREN):
        process = os.fork()
        if process == 0:
            try:
                child(backend, delivery, number)
            except BaseException as error:
                fail(repr(error))  # it must not go on as a second parent
            os._exit(0)
        children.append(process)
        backend.publish(Envelope.new("test.In", "in", b"{}"))
        again = inbox.get(timeout=10)
        assert again is not None
        again.ack()
    for thread in threads:
        thread.join()
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in children]
    delivery.ack()
    consumption.stop(0)
    consumption.close()
    backend.close()
    sys.exit(max(codes))


if __name__ == "__main__":
    main(sys.argv[1])
