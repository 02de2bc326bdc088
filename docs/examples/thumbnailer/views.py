"""What the site answers."""

from flask import Blueprint, Response, abort, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from queuey_sync import QueueyError
from thumbnailer.jobs import MakeThumbnail, queuey
from thumbnailer.models import Picture, db

FORM = """
<form action="/pictures" method="post" enctype="multipart/form-data">
  <input type="file" name="picture" required> <button>Shrink</button>
</form>
"""

views = Blueprint("views", __name__)


@views.get("/")
def index() -> str:
    return FORM


@views.post("/pictures")
def upload() -> AnyResponse:
    picture = Picture(original=request.files["picture"].read())
    db.session.add(picture)
    db.session.commit()  # before the job is there to look for it
    try:
        queuey.enqueue(MakeThumbnail(picture.id), request.headers.get("X-Request-ID"))
    except QueueyError:
        db.session.delete(picture)
        db.session.commit()
        abort(503, "Please try again later.")
    return redirect(url_for("views.show", picture_id=picture.id), 303)


@views.get("/pictures/<int:picture_id>")
def show(picture_id: int) -> Response:
    picture = db.get_or_404(Picture, picture_id)
    if picture.error is not None:
        return Response(picture.error, 422)
    if picture.thumbnail is None:
        return Response("Not yet.", 202, headers={"Refresh": "1"})
    return Response(picture.thumbnail, mimetype="image/jpeg")
