"""The shop's own tests: `python manage.py test`, without a broker and without a worker."""

from django.test import TestCase, override_settings

from queuey_sync import JobContext

from .jobs import SendReceipt, send_receipt
from .models import Order, Outgoing, Receipt
from .outbox import publish_outgoing


@override_settings(SECURE_SSL_REDIRECT=False, QUEUEY={"APP": "orders.queues:app", "URL": "inline:"})
class OrderTests(TestCase):
    """With the URL ``inline:`` a job runs where it is published, through all of a worker's code."""

    def test_a_receipt_is_sent_once_the_order_is_committed(self) -> None:
        """A `TestCase` never commits, so it is asked to act as if it had."""
        with self.captureOnCommitCallbacks(execute=True):
            answer = self.client.post("/orders/", {"email": "ada@example.org", "item": "tea"})
            assert not Receipt.objects.exists()
        shown = self.client.get(f"/orders/{answer.json()['order']}/")
        assert shown.json() == {"item": "tea", "receipt": answer.json()["job"]}

    def test_the_outbox_is_published(self) -> None:
        """What a view has left there, in the transaction of the order itself."""
        order = Order.objects.create(email="ada@example.org", item="tea")
        Outgoing.objects.create(order=order)
        assert publish_outgoing() == 1
        assert Receipt.objects.get().order == order
        assert publish_outgoing() == 0

    def test_a_second_run_sends_nothing(self) -> None:
        """A handler is a function, and can be called as one."""
        order = Order.objects.create(email="ada@example.org", item="tea")
        job = SendReceipt(order=order.pk)
        for _ in range(2):
            send_receipt(job, JobContext.for_test(job))
        assert Receipt.objects.count() == 1
