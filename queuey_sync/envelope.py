"""The envelope: what travels to the broker and back, and its frozen JSON.

The layout is a promise to every other program on the same queues: fields are only ever added, with
a default; never renamed, retyped or removed. Nothing here knows job classes or brokers. The payload
stays raw bytes until the job's type decodes it, in `jobs.py`.
"""

import time
import uuid
from typing import Annotated, Self

import msgspec

from queuey_sync.errors import MalformedEnvelope, SerializationError

_U32_MAX = 2**32 - 1
_U64_MAX = 2**64 - 1
_U8 = Annotated[int, msgspec.Meta(ge=0, le=255)]
_U32 = Annotated[int, msgspec.Meta(ge=0, le=_U32_MAX)]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job on its way: who it is, where it belongs, how often it ran, and its payload.

    Frozen; `next_attempt` and `deferred` make the copies that go back to the broker. The order of
    the fields is their order on the wire.

    Attributes:
        job_id: Stays the same through every attempt and deferral.
        job_type: The name of the job, by which a worker picks the handler.
        queue: The full name of the queue that it belongs to.
        attempt: Counted from 1.
        enqueued_at_ms: When it was first enqueued, in milliseconds since 1970.
        deferrals: How often a handler said "not now".
        priority: The level it is queued with; 0 is ordinary work.
        correlation_id: The caller's own mark, or None.
        payload: The job as JSON, bytes-like.

    >>> envelope = Envelope.new("mail.send", "shop.emails", b'{"to":"ada"}')
    >>> Envelope.decode(envelope.encode()) == envelope
    True
    """

    job_id: uuid.UUID
    job_type: str
    queue: str
    attempt: _U32
    enqueued_at_ms: int
    # A default made by a factory is always written, a plain one is left out by `omit_defaults`: the
    # wire always holds these two, and never an absent correlation id.
    deferrals: _U32 = msgspec.field(default_factory=int)
    priority: _U8 = msgspec.field(default_factory=int)
    correlation_id: str | None = None
    payload: msgspec.Raw

    @classmethod
    def new(
        cls,
        job_type: str,
        queue: str,
        payload: bytes,
        *,
        correlation_id: str | None = None,
        priority: int = 0,
        now_ms: int | None = None,
    ) -> Self:
        """The envelope of a job that is enqueued now, with a fresh id.

        Args:
            job_type: The name of the job.
            queue: The full name of its queue.
            payload: The job as JSON.
            correlation_id: The caller's own mark.
            priority: The level it is queued with.
            now_ms: The time in milliseconds since 1970; the clock's by default.

        Raises:
            SerializationError: The correlation id is no text.
        """
        _check_correlation_id(correlation_id)
        return cls(
            job_id=uuid.uuid4(),
            job_type=job_type,
            queue=queue,
            attempt=1,
            enqueued_at_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
            priority=priority,
            correlation_id=correlation_id,
            payload=msgspec.Raw(payload),
        )

    def encode(self) -> bytes:
        """The body of the message: compact JSON in UTF-8.

        Raises:
            SerializationError: A text in it holds a lone surrogate.
        """
        try:
            return _encoder.encode(self)
        except UnicodeEncodeError as error:
            raise SerializationError(str(error)) from error

    @classmethod
    def decode(cls, body: bytes) -> "Envelope":
        """The envelope in the body of a message; unknown keys are ignored.

        Raises:
            MalformedEnvelope: The body is not JSON, or a field is missing, of another type or out
                of its range.
        """
        try:
            # The decoder skips over the payload and unknown keys without looking at their text.
            if not body.isascii():
                body.decode()
            envelope = _decoder.decode(body)
        except Exception as error:  # deep nesting, for one, is a RecursionError
            raise MalformedEnvelope(str(error)) from error
        if not 0 <= envelope.enqueued_at_ms <= _U64_MAX:  # a bound that Meta cannot hold
            raise MalformedEnvelope("enqueued_at_ms is out of range")
        return envelope

    def next_attempt(self) -> Self:
        """The copy for the next attempt: one attempt more, ordinary priority."""
        return msgspec.structs.replace(self, attempt=min(self.attempt + 1, _U32_MAX), priority=0)

    def deferred(self, priority: int) -> Self:
        """The copy that waits: one deferral more, to come back with this priority.

        Args:
            priority: The top level of its queue.
        """
        return msgspec.structs.replace(
            self, deferrals=min(self.deferrals + 1, _U32_MAX), priority=priority
        )

    def again(self, payload: bytes | None = None) -> Self:
        """The copy that a dead letter is replaced by: attempt 1, ordinary priority, the same id.

        Args:
            payload: The job as JSON, in place of what it was.
        """
        return msgspec.structs.replace(
            self,
            attempt=1,
            deferrals=0,
            priority=0,
            payload=self.payload if payload is None else msgspec.Raw(payload),
        )

    def with_correlation_id(self, correlation_id: str | None) -> Self:
        """The same envelope with this correlation id.

        Raises:
            SerializationError: The correlation id is no text.
        """
        _check_correlation_id(correlation_id)
        return msgspec.structs.replace(self, correlation_id=correlation_id)


def _check_correlation_id(value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise SerializationError(f"correlation_id: expected text, got {value!r}")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Envelope)
