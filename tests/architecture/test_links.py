"""Links between the pages lead somewhere, and every page can be reached from the README."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]

_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ +(?P<title>.+)$", re.MULTILINE)


def _text(page: Path) -> str:
    """A page without its blocks of code, in which `#` begins a comment."""
    return _CODE.sub("", page.read_text(encoding="utf-8"))


def _links(page: Path) -> Iterator[tuple[Path, str]]:
    """The files that a page links to, and the headings in them."""
    for link in _LINK.finditer(_text(page)):
        target, _, anchor = link["target"].partition("#")
        if "://" not in target:
            yield (page.parent / target).resolve() if target else page, anchor


def _anchors(page: Path) -> set[str]:
    """The anchors that code hosts give to the headings of a page."""
    titles = (heading["title"].lower() for heading in _HEADING.finditer(_text(page)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """What a page links to exists, and so does the heading."""
    links = list(_links(page))
    assert [] == [str(target) for target, _ in links if not target.exists()]
    assert [] == [
        f"{target.name}#{anchor}"
        for target, anchor in links
        if anchor and anchor not in _anchors(target)
    ]


def test_every_page_is_within_two_links_of_the_readme() -> None:
    """A reader finds each page of the documentation in two steps."""
    near = {target for target, _ in _links(ROOT / "README.md")}
    within_two = near.union(
        target
        for page in near
        if page.suffix == ".md" and page.exists()
        for target, _ in _links(page)
    )
    assert set() == set(PAGES) - within_two - {ROOT / "README.md"}
