"""What the site keeps."""

from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)


class Picture(db.Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    original: Mapped[bytes]
    thumbnail: Mapped[bytes | None]
    error: Mapped[str | None]
