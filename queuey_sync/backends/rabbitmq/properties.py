"""The AMQP properties of what is published. Pure, but for the time of a death.

Never an expiration, never a header that a delivery arrived with: a copy is built from the
envelope alone, because brokers judge a message by the history in its headers. A worker reads none
of these back; they are for people who look into a queue, and `dead.py` reads those of dead letters
for them. `topology.py` says where messages go.
"""

import time
from collections.abc import Mapping
from typing import Final

import pika

from queuey_sync.envelope import Envelope

_SHORT_TEXT = 255
"""Bytes; a short string of AMQP holds no more."""
_HEADER_TEXT = 2_048
"""Bytes; the broker hangs up over headers that do not fit into a frame, which may be of 4 KiB."""
_PERSISTENT: Final = 2


def of_envelope(envelope: Envelope) -> pika.BasicProperties:
    """The properties of a job on its way to a worker."""
    return _properties(envelope, {"x-attempt": envelope.attempt, "x-deferrals": envelope.deferrals})


def of_dead_letter(envelope: Envelope, queue: str, reason: str) -> pika.BasicProperties:
    """The properties of a job that was given up on; `queue` is where it was consumed from."""
    headers: dict[str, int | str] = {
        "x-attempt": envelope.attempt,
        "x-deferrals": envelope.deferrals,
        "x-death-reason": cut(reason, _HEADER_TEXT),
        "x-original-queue": queue,
        "x-attempts": envelope.attempt,
    }
    properties = _properties(envelope, headers)
    properties.timestamp = int(time.time())
    return properties


def of_malformed(queue: str) -> pika.BasicProperties:
    """The properties of a body that is no envelope."""
    return pika.BasicProperties(
        delivery_mode=_PERSISTENT,
        headers={"x-death-reason": "malformed envelope", "x-original-queue": queue},
        timestamp=int(time.time()),
    )


def cut(text: str, limit: int) -> str:
    """At most `limit` bytes of `text`, cut between two characters; lone surrogates become ``?``.

    >>> cut("naïve", 3), cut("naïve", 4)
    ('na', 'naï')
    """
    encoded = text.encode(errors="replace")
    return encoded[:limit].decode(errors="ignore")


def _properties(envelope: Envelope, headers: Mapping[str, int | str]) -> pika.BasicProperties:
    return pika.BasicProperties(
        content_type="application/json",
        headers=dict(headers),
        delivery_mode=_PERSISTENT,
        priority=envelope.priority,
        message_id=str(envelope.job_id),
        type=cut(envelope.job_type, _SHORT_TEXT),
    )
