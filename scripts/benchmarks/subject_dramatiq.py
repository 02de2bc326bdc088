"""dramatiq with its defaults, as its command runs it: one process of as many threads as all others.

Its prefetch is set by the environment variable that dramatiq reads; see `running.py`.
"""

import logging
import os
import sys

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from scripts.benchmarks import recording

MODULE = "scripts.benchmarks.subject_dramatiq"
CONFIRMED = len(sys.argv) > 1 and sys.argv[1] in {"publish", "trickle"}
broker = RabbitmqBroker(
    url=recording.URL, confirm_delivery=CONFIRMED, max_priority=recording.LEVELS
)
dramatiq.set_broker(broker)
logging.basicConfig(level=logging.WARNING)


@dramatiq.actor(queue_name="bench.dramatiq")  # type: ignore[untyped-decorator] # it has no types
def take_note(text: str, sent_ns: int) -> None:  # noqa: ARG001 - the job of every subject
    """Do nothing but count."""
    recording.record(sent_ns)


def _send(sent_ns: int) -> None:
    take_note.send(recording.TEXT, sent_ns)


def load() -> None:
    """Fill the queue."""
    for _ in range(recording.JOBS):
        _send(0)
    broker.close()


def work() -> None:
    """Drain it."""
    options = ["--processes", "1", "--threads", str(recording.THREADS), "--skip-logging"]
    os.execv(sys.executable, [sys.executable, "-m", "dramatiq", MODULE, *options])


def publish() -> None:
    """Send one by one, confirmed."""
    recording.time_publishing(_send)
    broker.close()


def trickle() -> None:
    """Send a job now and then."""
    recording.publish_now_and_then(_send)
    broker.close()


if __name__ == "__main__":
    recording.play({"load": load, "work": work, "publish": publish, "trickle": trickle})
