"""The queues of the shop. QUEUEY["APP"] names `app`; models are not needed here."""

from queuey_sync import QueueSet, Queuey, RetryPolicy, queue


class Queues(QueueSet, prefix="shop"):
    """Where the shop's jobs wait."""

    MAIL = queue(retry=RetryPolicy.exponential(max_attempts=5))


app = Queuey(Queues)
