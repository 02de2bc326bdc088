"""A backend in the memory of one process: for tests, and the example for writing another one.

Jobs are encoded and decoded as for a broker, so that what works here works there. `store.py` has
the queues and moves messages, `consumption.py` feeds a worker, `delivery.py` settles, `timer.py`
and `clock.py` let messages wait, and `backend.py` holds them together. Begin with `store.py`.
"""
