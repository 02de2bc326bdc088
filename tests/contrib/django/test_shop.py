"""The shop of the documentation: a real server, a real worker, and real requests."""

import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

from tests.contrib.django.conftest import Site
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


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_an_order_gets_its_receipt(shop: Site, pool: str) -> None:
    """The id of the job comes with the response, and that of the request is in the worker's log."""
    shop.environment["SHOP_DEBUG"] = "1"  # no HTTPS here
    shop.manage("migrate", "-v", "0")
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
    worker.says("receipt of order 1 sent to ada@example.org [request-7]")
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
