"""For jobs that must not be missed even if the queue cannot be reached after the commit."""

from .jobs import SendReceipt
from .models import Outgoing
from .queues import app


def publish_outgoing() -> int:
    """Publish the job of each row, and delete the row when the job is on its queue."""
    published = 0
    for row in Outgoing.objects.order_by("pk"):
        app.enqueue(SendReceipt(order=row.order_id))
        row.delete()
        published += 1
    return published
