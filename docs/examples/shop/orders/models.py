"""What the shop remembers."""

from django.db import models


class Order(models.Model):
    """Somebody wants something."""

    email = models.EmailField()
    item = models.CharField(max_length=100)
    placed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.item} for {self.email}"


class Outgoing(models.Model):
    """The receipt of an order is to be sent, and its job is not published yet; see outbox.py."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE)

    def __str__(self) -> str:
        return f"to be published: receipt of {self.order}"


class Receipt(models.Model):
    """A receipt was sent; one for each order, however often its job ran."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    job_id = models.UUIDField()
    sent_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"receipt of {self.order}"
