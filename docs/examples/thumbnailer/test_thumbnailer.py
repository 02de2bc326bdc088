"""The tests of the site: no server, no worker, no broker."""

from collections.abc import Callable, Iterator
from io import BytesIO

import pytest
from flask.testing import FlaskClient
from PIL import Image

from queuey_sync import Queuey
from queuey_sync.testing import MemoryJobs
from thumbnailer import create_app
from thumbnailer.jobs import MakeThumbnail, queuey
from thumbnailer.models import Picture, db


@pytest.fixture
def client() -> Iterator[FlaskClient]:
    app = create_app(SQLALCHEMY_DATABASE_URI="sqlite://")  # in memory
    with app.app_context():
        db.create_all()
    yield app.test_client()
    with app.app_context():
        db.engine.dispose()


@pytest.fixture
def jobs(queuey_memory: Callable[[Queuey], MemoryJobs]) -> MemoryJobs:
    return queuey_memory(queuey)


def send(client: FlaskClient, content: bytes) -> str:
    answer = client.post("/pictures", data={"picture": (BytesIO(content), "a.png")})
    assert answer.status_code == 303
    return answer.location


def test_a_picture_is_shrunk(client: FlaskClient, jobs: MemoryJobs) -> None:
    picture = BytesIO()
    Image.new("RGB", (800, 400), "green").save(picture, "PNG")
    place = send(client, picture.getvalue())
    assert client.get(place).status_code == 202
    assert jobs.enqueued(MakeThumbnail) == [MakeThumbnail(1)]
    jobs.run()
    assert Image.open(BytesIO(client.get(place).data)).size == (200, 100)
    assert jobs.dead() == []


def test_what_is_no_picture_is_refused(client: FlaskClient, jobs: MemoryJobs) -> None:
    place = send(client, b"text")
    jobs.run()
    assert client.get(place).status_code == 422
    assert jobs.dead() == []


def test_a_picture_without_a_job_is_not_kept(client: FlaskClient, jobs: MemoryJobs) -> None:
    jobs.backend.close()
    answer = client.post("/pictures", data={"picture": (BytesIO(b"text"), "a.png")})
    assert answer.status_code == 503
    with client.application.app_context():
        assert db.session.query(Picture).count() == 0
