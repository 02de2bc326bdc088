"""Publishing with confirms, from any thread, over one connection of its own.

`calls.py` and `outbox.py` are pure; `link.py` is one connection, `publisher.py` the thread.
"""
