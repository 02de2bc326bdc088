"""Consuming from RabbitMQ: what the one consumer thread does and owns.

`consumer.py` has the thread, `session.py` one connection of it, `channel.py` one queue, `ledger.py`
the acknowledgements, `delivery.py` one message in a worker's hands. Publishing is not in here.
"""
