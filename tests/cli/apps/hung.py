"""Enqueues as many jobs that hang as HANGING says when it is imported."""

import os

from shop import Hang, app  # type: ignore[import-not-found]

__all__ = ["app"]

app.enqueue_many([Hang()] * int(os.environ["HANGING"]))
