"""Where jobs wait: one module or folder for each kind of store.

`base.py` is the contract in prose, `memory/` the smallest whole example, `rabbitmq/` the broker,
`sqlite/` one file.
"""
