"""An app with a factory, a database, and jobs that leave it in every state."""

import os
import time
from contextvars import ContextVar
from pathlib import Path

import click
from flask import Flask, current_app, g, url_for
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from queuey_sync import (
    Deferred,
    Fatal,
    Job,
    JobContext,
    QueueSet,
    Retryable,
    RetryPolicy,
    current_job,
    queue,
)
from queuey_sync.contrib.flask import FlaskQueuey


class Base(DeclarativeBase):
    """All tables."""


db = SQLAlchemy(model_class=Base)


class Row(db.Model):
    """A line of the ledger."""

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(unique=True)


class Queues(QueueSet, prefix="ledger"):
    """One queue, on which nothing is tried twice."""

    ROWS = queue(retry=RetryPolicy.none())


class Do(Job[Queues], queue=Queues.ROWS, name="ledger.do"):
    """Do this."""

    what: str


LEAVING_A_TRANSACTION = {"defer", "fatal", "forget", "hang", "push", "retryable", "spoil"}

LEFT: ContextVar[bool] = ContextVar("ledger_left", default=False)
queuey = FlaskQueuey(Queues)


def mark(text: str) -> None:
    """Leave a line for the test."""
    with Path(os.environ["LEDGER_MARKS"]).open("a") as marks:
        marks.write(f"{text}\n")


@queuey.on_start
def start() -> None:
    """What is called once."""
    mark(f"start {current_app.name}")


@queuey.handler
def do(job: Do, ctx: JobContext) -> None:
    """Say what an earlier job has left, and do this."""
    if "x" in g or LEFT.get() or db.session.registry.registry or db.engine.pool.checkedout():
        mark("dirty")
    mark(job.what)
    leave(job.what)
    match job.what:
        case "fatal":
            raise Fatal("no luck")
        case "retryable":
            raise Retryable("no luck")
        case "defer" if not ctx.deferrals:
            raise Deferred("100ms")
        case "hang":
            while True:
                time.sleep(0.01)
        case "address":
            mark(url_for("static", filename="a.css"))
        case "log":
            current_app.logger.warning("logged once")
        case "commit":
            db.session.add(Row(text=f"row {db.session.query(Row).count()}"))
            db.session.commit()


def leave(what: str) -> None:
    """Leave something in the context, and for some a context and a transaction."""
    g.x = 1
    LEFT.set(True)
    if what == "push":
        db.session.query(Row).count()  # which begins a transaction in the job's own context
        current_app.app_context().push()
    if what in LEAVING_A_TRANSACTION:
        db.session.add_all(Row(text=what) for _ in range(1 + (what == "spoil")))
        db.session.flush()


def create_app() -> Flask:
    """The factory."""
    app = Flask("ledger")
    app.config.from_prefixed_env()
    if "WARN" in app.config:
        app.logger.warning("made")  # gives it a handler of its own
    db.init_app(app)
    queuey.init_app(app)

    @app.teardown_appcontext
    def end(error: BaseException | None) -> None:
        if current_job() is not None:
            mark(f"end {type(error).__name__}")
            if "BAD_END" in app.config:
                raise OSError("no way to end")

    @app.cli.command()
    def init_db() -> None:
        db.create_all()

    @app.cli.command()
    def rows() -> None:
        for row in db.session.query(Row):
            click.echo(row.text)

    return app
