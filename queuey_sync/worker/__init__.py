"""Working jobs. Read `worker.py` first: its `Worker.run` is the life of a worker on one page."""
