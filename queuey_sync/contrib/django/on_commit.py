"""`enqueue_on_commit`: publish a job when the transaction is committed, and never if it is not.

Between the commit and the broker lies a moment in which the broker may refuse. That is logged and
sent to `publish_failed`; a job that must not be lost then needs an outbox, as the guide shows.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.dispatch import Signal
from django.utils import timezone

from queuey_sync.app import Queuey
from queuey_sync.contrib.django.conf import current_app
from queuey_sync.envelope import Envelope
from queuey_sync.jobs import Job
from queuey_sync.observe.escaping import describe, one_line
from queuey_sync.producer import envelope_of

_log = logging.getLogger(__name__)

publish_failed = Signal()
"""Sent when a job could not be published after the commit, with ``job_id``, ``job`` and ``error``;
the sender is the class of the job."""


def enqueue_on_commit(
    job: Job[Any],
    *,
    using: str | None = None,
    correlation_id: str | None = None,
    robust: bool = True,
) -> UUID:
    """Publish a job once the transaction that is open now is committed; nothing after a rollback.

    Outside a transaction it is published at once, and what is wrong then is raised, as by
    `Queuey.enqueue`.

    Args:
        job: The job.
        using: The alias of the database whose transaction it is; the default one's if not given.
        correlation_id: As for `Queuey.enqueue`.
        robust: Whether the request goes on when the job cannot be published after the commit. With
            False the error is raised out of the ``atomic`` block, and what else waits for the
            commit is not done, as with Django's own ``on_commit``. It is logged and sent to
            `publish_failed` in both cases.

    Returns:
        The id of the job.

    Raises:
        ConfigurationError: It is no job, or of another queue set than the site's app.
        SerializationError: It cannot be encoded.
    """
    app = current_app()
    envelope = envelope_of(job, app.queues, correlation_id)
    publish_on_commit(Publication(app, job, envelope), using=using, robust=robust)
    return envelope.job_id


@dataclass(frozen=True, slots=True)
class Publication:
    """A job that is to be published.

    Attributes:
        app: The app that it is for.
        job: The job.
        envelope: What is published.
        due: When it is to become visible; None is at once.
        then: Called when it is published.
    """

    app: Queuey[Any]
    job: Job[Any]
    envelope: Envelope
    due: datetime | None = None
    then: Callable[[], object] | None = None

    def publish(self) -> None:
        """Publish it now; raises what `Queuey.enqueue` raises."""
        delay = None if self.due is None else max(self.due - timezone.now(), timedelta(0))
        # The producer has the queues declared.
        self.app.producer().backend.publish(self.envelope, delay)
        if self.then is not None:
            self.then()


def publish_on_commit(what: Publication, *, using: str | None, robust: bool) -> None:
    """Publish on commit, or at once if there is no transaction."""
    if not transaction.get_connection(using).in_atomic_block and transaction.get_autocommit(using):
        what.publish()
        return

    def publish() -> None:
        try:
            what.publish()
        except Exception as error:
            _report(what, error)
            if not robust:
                raise

    transaction.on_commit(publish, using=using, robust=robust)


def _report(what: Publication, error: Exception) -> None:
    envelope = what.envelope
    _log.error(
        "job %s (`%s`) was not published after the commit: %s",
        envelope.job_id,
        envelope.job_type,
        one_line(describe(error)),
    )
    sender = type(what.job)
    publish_failed.send_robust(sender, job_id=envelope.job_id, job=what.job, error=error)
