"""The jobs of `early`, which cannot be imported before it."""

import os

from early import Queues, app, queuey
from flask import current_app
from ledger import Row, db, mark

from queuey_sync import Job


class Write(Job[Queues], queue=Queues.ROWS, name="early.write"):
    """Write a row."""


@queuey.handler
def write(_job: Write) -> None:
    """Count the connections that are inherited, and write a row."""
    assert current_app._get_current_object() is app
    mark(f"{db.engine.pool.checkedin()} connections of {os.getpid()}")
    db.session.add(Row(text="written"))
    db.session.commit()
