"""What the site leaves to its workers."""

from io import BytesIO

from flask import current_app
from PIL import Image, UnidentifiedImageError

from queuey_sync import Fatal, Job, QueueSet, RetryPolicy, queue
from queuey_sync.contrib.flask import FlaskQueuey
from thumbnailer.models import Picture, db


class Queues(QueueSet, prefix="thumbnailer"):
    PICTURES = queue(retry=RetryPolicy.exponential(max_attempts=5))


class MakeThumbnail(Job[Queues], queue=Queues.PICTURES, name="thumbnail.make"):
    picture_id: int


queuey = FlaskQueuey(Queues)


@queuey.handler
def make_thumbnail(job: MakeThumbnail) -> None:
    picture = db.session.get(Picture, job.picture_id)
    if picture is None:
        raise Fatal("the picture was deleted")
    try:
        picture.thumbnail = shrink(picture.original)
    except UnidentifiedImageError:
        picture.error = "This is no picture."
    db.session.commit()
    current_app.logger.info("picture %s is done", picture.id)


def shrink(original: bytes) -> bytes:
    image: Image.Image = Image.open(BytesIO(original))
    image.thumbnail((200, 200))
    shrunk = BytesIO()
    image.convert("RGB").save(shrunk, "JPEG")
    return shrunk.getvalue()
