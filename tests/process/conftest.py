"""Fixtures for programs with a process pool."""

from collections.abc import Callable, Iterator

import pytest

from tests.process.pool_workers import Family, family_starter


@pytest.fixture
def start() -> Iterator[Callable[..., Family]]:
    """Starts programs; whatever came of them is killed at the end of the test."""
    yield from family_starter()
