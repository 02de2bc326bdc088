"""This library as its users have it: typed jobs, the job's context, a log filter on the handler."""

import logging
import signal
import time

from queuey_sync import Job, JobContext, JobLogFilter, ProcessPool, QueueSet, Queuey, Worker, queue
from scripts.benchmarks import recording


class Queues(QueueSet, prefix="bench"):
    """The one queue."""

    QUEUEY = queue(prefetch=recording.PREFETCH, max_priority=recording.LEVELS)


class Note(Job[Queues], queue=Queues.QUEUEY, name="bench.note"):
    """The job of every subject."""

    text: str
    sent_ns: int


app = Queuey(Queues, url=recording.URL)


@app.handler
def take_note(job: Note, _ctx: JobContext) -> None:
    """Do nothing but count."""
    recording.record(job.sent_ns)


def load() -> None:
    """Fill the queue."""
    app.enqueue_many(Note(recording.TEXT, 0) for _ in range(recording.JOBS))
    app.close()


def work() -> None:
    """Drain it with threads."""
    _log()
    _run(app.worker(concurrency=recording.THREADS, close_backend_on_shutdown=True))


def work_children() -> None:
    """Drain it with child processes."""
    _log()
    pool = ProcessPool(initializer=_log)
    _run(app.worker(pool=pool, concurrency=recording.CHILDREN, close_backend_on_shutdown=True))


def _log() -> None:
    handler = logging.StreamHandler()
    handler.addFilter(JobLogFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _run(worker: Worker[Queues]) -> None:
    signal.signal(signal.SIGTERM, lambda _number, _frame: worker.handle().shutdown())
    worker.run()


def _enqueue(sent_ns: int) -> None:
    app.enqueue(Note(recording.TEXT, sent_ns))


def publish() -> None:
    """Enqueue one by one."""
    recording.time_publishing(_enqueue)
    app.close()


def publish_many() -> None:
    """Enqueue all together; the jobs are made in the measured time, as they are one by one."""
    _enqueue(0)
    recording.time_batch(
        lambda: app.enqueue_many(
            Note(recording.TEXT, time.monotonic_ns()) for _ in range(recording.JOBS)
        )
    )
    app.close()


def trickle() -> None:
    """Enqueue a job now and then."""
    recording.publish_now_and_then(_enqueue)
    app.close()


if __name__ == "__main__":
    recording.play(
        {
            "load": load,
            "work": work,
            "work-children": work_children,
            "publish": publish,
            "publish-many": publish_many,
            "trickle": trickle,
        }
    )
