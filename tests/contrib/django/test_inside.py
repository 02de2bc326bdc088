"""Tests that run inside of Django, each module in a process of its own."""

import pytest

from tests.contrib.django.conftest import PROJECT, Site

MODULES = sorted(file.stem for file in (PROJECT / "things" / "tests").glob("test_*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_inside(site: Site, module: str) -> None:
    """``manage.py test`` passes."""
    done = site.manage("test", f"things.tests.{module}", "--shuffle")
    assert "\nOK" in done.err
