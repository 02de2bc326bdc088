"""Jobs in one SQLite file: no broker, several processes, one machine.

`schema.py` says what is in the file, `store.py` moves jobs in it, `file.py` lets all threads of a
process share one connection, `consumer.py` feeds a worker, `delivery.py` settles, and `backend.py`
holds them together; `moving.py` carries all of it elsewhere. Begin with `schema.py`.
"""
