"""The RabbitMQ backend, and the only package that imports pika.

Pure are `options.py` (knobs), `topology.py` (queue names and arguments), `properties.py` (what a
message carries). `publishing/` publishes and declares, `consuming/` consumes; `dialling.py` says
where the broker is, `looking.py` and `management.py` what waits there; `backend.py` holds them
together. Begin with `topology.py`.
"""
