"""The shop of the documentation: a real server, a real worker, and real requests."""

import json
import re
import socket
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.contrib.django.conftest import SHOP, Site
from tests.support.broker import Broker
from tests.support.source import ROOT
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "--deploy", "--fail-level", "WARNING"),
        ("makemigrations", "--check", "--dry-run"),
        ("test",),
    ],
    ids=" ".join,
)
def test_django_finds_nothing_wrong(shop: Site, arguments: tuple[str, ...]) -> None:
    """Checks, migrations and the shop's own tests."""
    shop.manage(*arguments)


def test_the_page_is_the_example() -> None:
    """What the how-to shows are files of the shop, and none of them differs."""
    page = (ROOT / "docs" / "how-to" / "django.md").read_text()
    files = _files_of(page)
    assert len(files) > 5
    for name, text in files:
        assert (SHOP / name).read_text() == text, name


@pytest.mark.parametrize(
    ("pool", "place"), [("thread", "store"), ("process", "store"), ("process", "broker")]
)
def test_an_order_gets_its_receipt(
    shop: Site, pool: str, place: str, request: pytest.FixtureRequest
) -> None:
    """The id of the job comes with the response, and that of the request is in the worker's log."""
    if place == "broker":
        node: Broker = request.getfixturevalue("private_broker")  # the shop's queues have one name
        shop.environment["SHOP_QUEUEY_URL"] = node.url
    shop.environment["SHOP_DEBUG"] = "1"  # no HTTPS here
    shop.manage("migrate", "-v", "0")
    _order_and_receive(shop, pool)


def test_from_an_empty_folder(tmp_path: Path) -> None:
    """Who follows the page, command by command, has an order and its receipt."""
    page = (ROOT / "docs" / "how-to" / "django.md").read_text()
    project = tmp_path / "shop"
    project.mkdir()
    site = Site(project, tmp_path)
    try:
        site.run("-m", "django", "startproject", "config", ".")
        site.manage("startapp", "orders")
        settings, *_ = re.findall(
            r"^```python\n(INSTALLED_APPS .*?)^```", page, re.DOTALL | re.MULTILINE
        )
        with (project / "config" / "settings.py").open("a") as file:
            file.write(settings)
        for name, text in _files_of(page):
            (project / name).write_text(text)
        for command in ("check", "makemigrations orders", "migrate -v 0", "test"):
            site.manage(*command.split())
        _order_and_receive(site, "thread", said="receipt of order 1 sent to ada@example.org")
    finally:
        site.close()


def _files_of(page: str) -> list[tuple[str, str]]:
    found = re.findall(r"^```python\n# (\w+/\w+\.py)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return [(str(name), str(text)) for name, text in found]


def _order_and_receive(
    shop: Site, pool: str, said: str = "receipt of order 1 sent to ada@example.org [request-7]"
) -> None:
    port = _free_port()
    server = shop.start("manage.py", "runserver", "--noreload", f"127.0.0.1:{port}")
    worker = shop.start("manage.py", "queuey", "worker", "--pool", pool)
    address = f"http://127.0.0.1:{port}/orders/"
    form = urllib.parse.urlencode({"email": "ada@example.org", "item": "tea"}).encode()
    order = eventually(lambda: _ask(address, form, {"X-Request-ID": "request-7"}), 20)

    def sent() -> bool:
        assert _ask(f"{address}{order['order']}/") == {"item": "tea", "receipt": order["job"]}
        return True

    eventually(sent, 20, "the receipt is sent")
    worker.says(said)
    assert worker.stop() == 0
    server.process.kill()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _ask(address: str, form: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
    """The answer to a request; None as long as nobody answers."""
    request = urllib.request.Request(address, form, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.URLError:
        return None
