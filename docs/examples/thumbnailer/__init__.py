"""A site that makes thumbnails of the pictures that are sent to it."""

from flask import Flask

from thumbnailer.jobs import queuey
from thumbnailer.models import db
from thumbnailer.views import views


def create_app(**config: object) -> Flask:
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite:///thumbnailer.db"  # in the instance folder
    app.config["QUEUEY_URL"] = f"sqlite:///{app.instance_path}/jobs.db"  # beside it
    app.config.from_prefixed_env()  # FLASK_QUEUEY_URL and others
    app.config.update(config)
    db.init_app(app)
    queuey.init_app(app)
    app.register_blueprint(views)

    @app.cli.command()
    def init_db() -> None:
        """Make the tables."""
        db.create_all()

    return app
