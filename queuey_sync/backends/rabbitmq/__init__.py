"""The RabbitMQ backend, and the only package that imports pika.

Pure are `options.py` (knobs), `topology.py` (queue names and arguments), `properties.py` (what a
message carries) and `ledger.py` (acks). `publishing/` publishes and declares; `consumer.py`,
`channel.py` and `delivery.py` consume; `dialling.py` says where the broker is; `backend.py` holds
them together. Begin with `topology.py`.
"""
