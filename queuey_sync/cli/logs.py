"""The log of a command: one handler that writes to standard error, unless the app set up its own.

Called after the app was imported, so that the app's own set-up always comes first.
"""

import logging

from queuey_sync.observe.logs import JobLogFilter

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_LEVEL = "INFO"

_JOB_FIELDS = ("job_id", "job_type", "queue", "attempt")


class JobFormatter(logging.Formatter):
    """Time, level, logger and message; then the job, for a record that was made inside one.

    >>> record = logging.LogRecord("shop", logging.INFO, "", 1, "sent", (), None)
    >>> record.job_type, record.attempt = "mail.send", 2
    >>> JobFormatter().format(record)
    '... INFO shop: sent [job_type=mail.send attempt=2]'
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """The line before any traceback."""
        line = super().formatMessage(record)
        fields = [(key, str(getattr(record, key))) for key in _JOB_FIELDS if hasattr(record, key)]
        if not fields or fields[0][1] in line:  # our own records about a job name it already
            return line
        return f"{line} [{' '.join(f'{key}={value}' for key, value in fields)}]"


def set_up_logging(level: str | None) -> None:
    """Write the log to standard error, if the app has not set up the root logger.

    Args:
        level: For this library's records in any case, and for all others if the set-up is ours.
            None leaves the level that the app gave this library's, and else is `DEFAULT_LEVEL`.
    """
    ours = logging.getLogger("queuey_sync")
    if level is not None or ours.level == logging.NOTSET:
        ours.setLevel(level or DEFAULT_LEVEL)
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JobFormatter())
    handler.addFilter(JobLogFilter())
    root.addHandler(handler)
    root.setLevel(level or DEFAULT_LEVEL)
