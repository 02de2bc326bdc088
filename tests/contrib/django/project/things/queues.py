"""The queues of the site, and its app."""

from queuey_sync import QueueSet, Queuey, RetryPolicy, queue


class Queues(QueueSet, prefix="things"):
    """With levels, without, and with retries."""

    DEFAULT = queue()
    FLAT = queue(max_priority=0)
    RETRIED = queue(retry=RetryPolicy.fixed(max_attempts=20, delay="200ms"))


app = Queuey(Queues)
