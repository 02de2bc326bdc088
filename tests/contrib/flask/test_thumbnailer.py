"""The thumbnailer of the documentation: its own tests, and real requests to a real server."""

import re
import signal
import socket
import urllib.error
import urllib.request
import uuid
from io import BytesIO
from typing import NamedTuple

import pytest

from tests.conftest import FreshQueues
from tests.contrib.flask.conftest import EXAMPLES, FlaskCommands
from tests.support.source import ROOT
from tests.support.waiting import eventually

Image = pytest.importorskip("PIL.Image")

HOW_TO = ROOT / "docs" / "how-to" / "flask.md"


class Answer(NamedTuple):
    """What the server answers."""

    status: int
    url: str
    body: bytes


class Site:
    """The address of a server."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str) -> Answer:
        """Ask for a page."""
        return _ask(urllib.request.Request(f"{self.address}{path}"))

    def upload(self, picture: bytes, request_id: str) -> Answer:
        """Send a picture, as a form does, and follow to where its thumbnail will be."""
        boundary = uuid.uuid4().hex
        head = 'Content-Disposition: form-data; name="picture"; filename="picture"'
        body = f"--{boundary}\r\n{head}\r\n\r\n".encode() + picture
        headers = {
            "Content-Type": f"multipart/form-data; boundary={boundary}",
            "X-Request-ID": request_id,
        }
        form = body + f"\r\n--{boundary}--\r\n".encode()
        return _ask(urllib.request.Request(f"{self.address}/pictures", form, headers))


def _ask(request: urllib.request.Request) -> Answer:
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return Answer(answer.status, answer.url, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.url, error.read())


@pytest.fixture(params=["sqlite", "rabbitmq"])
def thumbnailer(request: pytest.FixtureRequest, flask: FlaskCommands) -> FlaskCommands:
    """Commands of the thumbnailer, its tables made, on each store."""
    del flask.environment["QUEUEY_URL"]  # the site has a URL of its own, in its configuration
    url = f"sqlite:///{flask.marks.parent}/jobs.db"
    if request.param == "rabbitmq":
        url = request.getfixturevalue("amqp_url")
        fresh: FreshQueues = request.getfixturevalue("fresh_queue")
        fresh.names.append("thumbnailer.pictures")  # to be deleted
    flask.environment["FLASK_QUEUEY_URL"] = url
    flask.succeed("thumbnailer", "init-db")
    return flask


def _serve(thumbnailer: FlaskCommands) -> Site:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    server = thumbnailer.flask("thumbnailer", "run", "--port", str(port))
    server.says("Running on")
    return Site(f"http://127.0.0.1:{port}")


def _result(site: Site, sent: Answer, status: int) -> bytes:
    """What comes of a picture, when something has."""
    path = sent.url.removeprefix(site.address)
    eventually(lambda: site.get(path).status != 202, 20, f"{path} is done")
    found = site.get(path)
    assert status == found.status
    return found.body


def _picture(width: int, height: int) -> bytes:
    content = BytesIO()
    Image.new("RGB", (width, height), "green").save(content, "PNG")
    return content.getvalue()


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_picture_that_is_sent_is_shrunk(thumbnailer: FlaskCommands, pool: str) -> None:
    """What is uploaded before there is a worker waits; the id of the request is in its log."""
    site = _serve(thumbnailer)
    early = site.upload(_picture(800, 400), "request-7")
    assert (202, b"Not yet.") == (early.status, early.body)

    worker = thumbnailer.flask("thumbnailer", "queuey", "worker", "-c", "2", "--pool", pool)
    late = [site.upload(_picture(400 + n, 800), f"request-{8 + n}") for n in range(3)]
    broken = site.upload(b"no picture", "request-11")

    for sent in (early, *late):
        assert 200 == max(Image.open(BytesIO(_result(site, sent, 200))).size)
    assert b"This is no picture." == _result(site, broken, 422)
    worker.says("picture 1 is done")
    assert re.search(r"picture 1 is done \[.*correlation_id=request-7\]", worker.err)
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait()


def test_its_own_tests_pass(flask: FlaskCommands) -> None:
    """As a user runs them, with the plugin of the library found by its entry point."""
    tests = str(EXAMPLES / "thumbnailer")
    options = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", tests)
    done = flask.run(tests, *options, python=("-B", "-W", "error", "-m", "pytest"))
    assert (0, True) == (done.wait(), "3 passed" in done.out), done.out


def test_the_how_to_shows_these_very_files() -> None:
    """Every file of the example is on the page, and none of them differs."""
    blocks = re.findall(
        r"^```python\n# (thumbnailer/\w+\.py)\n(.*?)^```",
        HOW_TO.read_text(),
        re.DOTALL | re.MULTILINE,
    )
    files = {f"thumbnailer/{file.name}": file.read_text() for file in EXAMPLES.glob("thumb*/*.py")}
    assert files == dict(blocks)
