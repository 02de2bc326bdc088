"""A program with a process pool: it enqueues jobs, and works until a signal.

Its one argument is JSON: `jobs` is a list of fields of jobs, `pool` the options of the pool, and
the rest those of the worker. `pool_workers.py` starts it.
"""

import json
import logging
import os
import signal
import sys
import threading
from typing import Any

from queuey_sync import ProcessPool
from tests.process.pool_jobs import Act, Limited, Queues, app, initializer, mark


def _main(*, jobs: list[dict[str, Any]], pool: dict[str, Any], **options: Any) -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(threadName)s %(message)s")
    for fields in jobs:
        fields["padding"] = "x" * fields.pop("padding", 0)
        kind = Limited if fields.pop("limited", False) else Act
        app.enqueue(kind(**fields))
    worker = app.worker(pool=ProcessPool(**pool, initializer=initializer), **options)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda *_: worker.handle().shutdown())
    if os.environ.get("NOISE"):
        for _ in range(8):
            threading.Thread(target=_log_heavily, daemon=True).start()
    mark("program")
    try:
        worker.run()
    finally:
        backend = app.backend()
        name = Queues.WORK.full_name
        dead = [letter[1] for letter in getattr(backend, "dead_letters", lambda _: [])(name)]
        left = getattr(backend, "pending", lambda _: None)(name)
        mark("left", pending=left, dead=dead)
        app.close()


def _log_heavily() -> None:
    while True:
        logging.getLogger("noise").info("noise")


if __name__ == "__main__":
    _main(**json.loads(sys.argv[1]))
