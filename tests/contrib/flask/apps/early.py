"""An app without a factory, in a circle with its jobs, which uses its database when imported."""

import os

from flask import Flask
from ledger import db, mark

from queuey_sync import QueueSet, queue
from queuey_sync.contrib.flask import FlaskQueuey


class Queues(QueueSet, prefix="early"):
    """One queue."""

    ROWS = queue()


app = Flask(__name__)
app.config.from_prefixed_env()
db.init_app(app)
queuey = FlaskQueuey(Queues, app)

from early_jobs import Write  # noqa: E402 - a circle

with app.app_context():
    db.create_all()
    mark(f"{db.engine.pool.checkedin()} connected in {os.getpid()}")

app.config["JOB"] = Write
