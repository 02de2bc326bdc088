"""celery with its threads or its processes and late acks, without the talk between workers."""

import sys

import celery

from scripts.benchmarks import recording

CONFIRMED = len(sys.argv) > 1 and sys.argv[1] in {"publish", "trickle"}
app = celery.Celery("bench", broker=recording.URL)
app.conf.update(
    broker_connection_retry_on_startup=False,
    broker_transport_options={"confirm_publish": CONFIRMED},
    task_acks_late=True,
    task_default_queue="bench.celery",
    task_ignore_result=True,
    task_queue_max_priority=recording.LEVELS,
)


@app.task(name="bench.note")  # type: ignore[untyped-decorator] # it has no types
def take_note(text: str, sent_ns: int) -> None:  # noqa: ARG001 - the job of every subject
    """Do nothing but count."""
    recording.record(sent_ns)


def _send(sent_ns: int) -> None:
    take_note.delay(recording.TEXT, sent_ns)


def load() -> None:
    """Fill the queue."""
    for _ in range(recording.JOBS):
        _send(0)


def work() -> None:
    """Drain it with threads."""
    _run("threads", recording.THREADS)


def work_children() -> None:
    """Drain it with child processes."""
    _run("prefork", recording.CHILDREN)


def _run(pool: str, concurrency: int) -> None:
    app.conf.worker_prefetch_multiplier = recording.PREFETCH // concurrency
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
    app.worker_main(["worker", "--pool", pool, "-c", str(concurrency), *quiet])


def publish() -> None:
    """Send one by one, confirmed."""
    recording.time_publishing(_send)


def trickle() -> None:
    """Send a job now and then."""
    recording.publish_now_and_then(_send)


if __name__ == "__main__":
    recording.play(
        {
            "load": load,
            "work": work,
            "work-children": work_children,
            "publish": publish,
            "trickle": trickle,
        }
    )
