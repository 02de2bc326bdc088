"""The job in every log record that its handler makes.

Attach `JobLogFilter` to a logging *handler*, so that it sees the records of all loggers.
"""

import logging

from queuey_sync.context import current_job
from queuey_sync.observe.escaping import LONGEST_NAME, one_line


class JobLogFilter(logging.Filter):
    """Gives records made inside a job the fields ``job_id job_type queue attempt``.

    A job that has a correlation id gives them ``correlation_id``, too. Records made outside a job
    get none, and no record is held back.

    >>> from queuey_sync import JobLogFilter
    >>> record = logging.LogRecord("shop", logging.INFO, "shop.py", 1, "hello", (), None)
    >>> JobLogFilter().filter(record), hasattr(record, "job_id")
    (True, False)
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; always True."""
        context = current_job()
        if context is not None:
            record.job_id = str(context.job_id)
            record.job_type = context.job_type
            record.queue = context.queue
            record.attempt = context.attempt
            if context.correlation_id is not None:
                record.correlation_id = one_line(context.correlation_id, LONGEST_NAME)
        return True
