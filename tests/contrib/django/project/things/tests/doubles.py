"""A worker's code without a worker, and what the tests of several modules ask for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import override_settings

from queuey_sync import Envelope, PublishRefused
from queuey_sync.contrib.django import current_app

MARKS = Path(os.environ["THINGS_MARKS"])

in_memory = override_settings(QUEUEY={"APP": "things.queues:app", "URL": "memory:"})
"""Jobs are published to a backend in memory, and wait there."""
inline = override_settings(QUEUEY={"APP": "things.queues:app", "URL": "inline:"})
"""Jobs run where they are published, through all of a worker's code."""


def marks() -> list[str]:
    """What handlers have written since this was asked last."""
    lines = MARKS.read_text().splitlines() if MARKS.exists() else []
    MARKS.unlink(missing_ok=True)
    return lines


@contextmanager
def published() -> Iterator[list[tuple[Envelope, Any]]]:
    """Collects what the app's backend is given to publish, and lets nothing through."""
    taken: list[tuple[Envelope, Any]] = []

    def publish(envelope: Envelope, delay: object = None) -> None:
        taken.append((envelope, delay))

    with mock.patch.object(current_app().backend(), "publish", publish):
        yield taken


@contextmanager
def refused() -> Iterator[None]:
    """A broker that takes nothing."""
    error = PublishRefused("queue `things.default` is full")
    with mock.patch.object(current_app().backend(), "publish", side_effect=error):
        yield
