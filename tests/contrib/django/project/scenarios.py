"""What the tests have happen inside a process of the site: one function each, printing JSON.

A worker runs in a thread of this process, on a backend in memory; sessions are counted on the
server.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django
import psycopg

from queuey_sync import Queuey, WorkerHandle

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
THREADS = 8


def sessions(terminate: bool = False) -> int:
    """How many sessions of the site the server has, or had, if they are to be ended."""
    what = "pg_terminate_backend(pid)" if terminate else "pid"
    with psycopg.connect(application_name="watcher") as connection:
        query = f"select {what} from pg_stat_activity where application_name = 'things'"
        return len(connection.execute(query).fetchall())


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, at most 30 s."""
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within 30 s: {what}")
        time.sleep(0.005)


@contextmanager
def working(app: Queuey[Any], threads: int = THREADS, **options: Any) -> Iterator[WorkerHandle]:
    """Run a worker in a thread; whatever it raises is raised at the end."""
    worker = app.worker(concurrency=threads, **options)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield worker.handle()
    finally:
        worker.handle().shutdown()
        thread.join()
    for error in errors:
        raise error


@contextmanager
def watching() -> Iterator[list[int]]:
    """How many sessions there were, asked again and again."""
    seen: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.append(sessions())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def enqueue_thousand(app: Queuey[Any]) -> None:
    """A thousand jobs, some of which leave a transaction open."""
    from things.jobs import Query

    app.enqueue_many([Query() for _ in range(900)])
    app.enqueue_many([Query(leave_block_open=number % 2 == 0) for number in range(100)])


def done(handle: WorkerHandle, count: int) -> Callable[[], bool]:
    """Whether so many jobs have succeeded."""
    return lambda: handle.counts("things.retried").succeeded >= count


def lost_sessions() -> Any:
    """Four jobs, then the server ends all sessions, then four more."""
    from things.jobs import Query
    from things.queues import app

    with working(app, 4) as handle:
        app.enqueue_many([Query("select pg_sleep(0.2)")] * 4)
        until(done(handle, 4), "four jobs")
        ended = sessions(terminate=True)
        app.enqueue_many([Query("select pg_sleep(0.2)")] * 4)
        until(done(handle, 8), "four more jobs")
        return {"ended": ended, "retried": handle.counts("things.retried").retried}


def thousand_jobs() -> Any:
    """A thousand jobs on eight threads, some of them ill-behaved, and the most sessions."""
    from things.queues import app

    with watching() as seen:
        with working(app) as handle:
            enqueue_thousand(app)
            until(done(handle, 1000), "a thousand jobs")
            if os.environ["THINGS_MAX_AGE"] == "0":
                until(lambda: sessions() == 0, "no session without a job")
        until(lambda: sessions() == 0, "no session after the stop")
    return {"most": max(seen)}


def failed_transactions() -> Any:
    """On one thread: a job with an aborted transaction, one that leaves a block, one more."""
    from django.db import connection
    from things.jobs import Query, Store
    from things.models import Thing
    from things.queues import app

    Thing.objects.all().delete()
    with working(app, 1) as handle:
        app.enqueue(Query(fail=True))
        until(lambda: handle.counts("things.retried").retried > 0, "a failure")
        app.enqueue(Query(leave_block_open=True))
        until(done(handle, 1), "a block left open")
        app.enqueue(Store("kept"))
        until(lambda: handle.counts("things.default").succeeded == 1, "a row")
        kept = Thing.objects.filter(name="kept").count()
    connection.close()
    return {"kept": kept}


def raw_transactions() -> Any:
    """On one thread: jobs that begin a transaction unknown to Django, or close its connection."""
    from django.db import connection
    from things.jobs import Misbehave, Store
    from things.models import Thing
    from things.queues import app

    Thing.objects.all().delete()
    with working(app, 1) as handle:
        for how in ("begin", "begin", "close the driver"):
            app.enqueue(Misbehave(how))
        for number in range(3):
            app.enqueue(Store(f"kept {number}"))
        until(lambda: handle.counts("things.default").succeeded == 6, "all of them")
        kept = sorted(Thing.objects.values_list("name", flat=True))
    connection.close()
    return {"kept": kept}


def after_the_commit() -> Any:
    """A job that looks for a row, while a worker is at hand from before the transaction."""
    from django.db import connection, transaction
    from things.jobs import Find, Query
    from things.models import Thing
    from things.queues import app

    from queuey_sync.contrib.django import enqueue_on_commit

    Thing.objects.all().delete()
    with working(app) as handle:
        with transaction.atomic():
            Thing.objects.create(name="new")
            enqueue_on_commit(Find("new"))
            app.enqueue(Query())
            until(done(handle, 1), "a job that was enqueued at once")
            early = handle.counts("things.default").succeeded
        until(lambda: handle.counts("things.default").succeeded == 1, "the job of the row")
    connection.close()
    return {"early": early}


def children() -> Any:
    """A thousand jobs in two child processes, and the most sessions."""
    from django.db import connection
    from things.jobs import Query
    from things.models import Thing
    from things.queues import app

    list(Thing.objects.all())  # a session of the parent, which no child must share
    url = f"sqlite:///{os.environ['THINGS_DATA']}/children.sqlite3"
    app.connect_to(url)

    def each_has_worked() -> bool:
        app.enqueue_many([Query() for _ in range(20)])  # the quicker child may take them all
        return sessions() > 2

    with watching() as seen:
        with working(app, 2, pool="process") as handle:
            until(each_has_worked, "a session for each child")
            enqueue_thousand(app)
            until(done(handle, 1020), "a thousand jobs")
        until(lambda: sessions() == 1, "the parent's session alone")
    connection.close()
    return {"most": max(seen)}


if __name__ == "__main__":
    django.setup()
    result = globals()[sys.argv[1]]()
    sys.stdout.write(json.dumps(result))
