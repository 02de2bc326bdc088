"""One model."""

from django.db import models


class Thing(models.Model):
    """Something with a name of its own."""

    name = models.CharField(max_length=100, unique=True)

    def __str__(self) -> str:
        return self.name
