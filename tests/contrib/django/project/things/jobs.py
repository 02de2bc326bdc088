"""The jobs of the site."""

import logging
import os
from pathlib import Path

from django.db import connection, transaction

from queuey_sync import Job, JobContext

from .models import Thing
from .queues import Queues, app

log = logging.getLogger(__name__)


class Find(Job[Queues], queue=Queues.DEFAULT, name="find"):
    """Look for a thing, and leave a mark that says whether it is there."""

    name: str


@app.handler
def find(job: Find, ctx: JobContext) -> None:
    """One line for each run."""
    found = Thing.objects.filter(name=job.name).exists()
    with Path(os.environ["THINGS_MARKS"]).open("a") as marks:
        marks.write(f"{job.name} {'found' if found else 'missing'} attempt {ctx.attempt}\n")
    log.warning("looked for %s", job.name)


class Query(Job[Queues], queue=Queues.RETRIED, name="query"):
    """Ask the database for something."""

    text: str = "select 1"
    fail: bool = False
    leave_block_open: bool = False


@app.handler
def query(job: Query) -> None:
    """In a transaction, which a failure leaves aborted, and an interrupt leaves open."""
    if job.leave_block_open:
        transaction.atomic().__enter__()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("select nonsense" if job.fail else job.text)


class Store(Job[Queues], queue=Queues.DEFAULT, name="store"):
    """Store a thing."""

    name: str


@app.handler
def store(job: Store) -> None:
    """Twice the same name is an error of the database."""
    Thing.objects.create(name=job.name)


class Misbehave(Job[Queues], queue=Queues.DEFAULT, name="misbehave"):
    """Leave the database as no job should."""

    how: str


@app.handler
def misbehave(job: Misbehave) -> None:
    """In one of several ways."""
    if job.how == "write, then fail":
        Thing.objects.create(name="misbehaved")
        raise ValueError("as asked to")
    if job.how == "set_rollback":
        transaction.set_rollback(True)
    if job.how == "bad statement":
        with connection.cursor() as cursor:
            cursor.execute("select nonsense")
    if job.how == "begin":
        with connection.cursor() as cursor:
            cursor.execute("begin")
        Thing.objects.create(name="misbehaved")
    if job.how == "close the driver":
        connection.ensure_connection()
        connection.connection.close()
