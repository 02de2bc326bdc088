"""The shop's jobs: imported when Django is set up, as every app's jobs.py is."""

import logging

from queuey_sync import Fatal, Job, JobContext

from .models import Order, Receipt
from .queues import Queues, app

log = logging.getLogger(__name__)


class SendReceipt(Job[Queues], queue=Queues.MAIL, name="orders.send_receipt"):
    """Send the receipt of an order."""

    order: int


@app.handler
def send_receipt(job: SendReceipt, ctx: JobContext) -> None:
    """A job may run twice, so it looks first."""
    try:
        order = Order.objects.get(pk=job.order)
    except Order.DoesNotExist:
        raise Fatal(f"order {job.order} is gone") from None
    _, made = Receipt.objects.get_or_create(order=order, defaults={"job_id": ctx.job_id})
    if made:
        log.info("receipt of order %s sent to %s", order.pk, order.email)
