"""What users may write: mypy and pyright find nothing to say here."""

import dataclasses
from datetime import timedelta
from uuid import UUID

from queuey_sync import (
    Fatal,
    Handlers,
    Job,
    JobContext,
    MemoryBackend,
    Producer,
    QueueConfig,
    QueueSet,
    Queuey,
    RetryPolicy,
    queue,
)


class Queues(QueueSet, prefix="shop"):
    """A set of queues."""

    EMAILS = queue(prefetch=10, message_ttl="7d")
    IMAGES = queue(name="img", retry=RetryPolicy.exponential(max_attempts=3, base="1s", max=120))


class SendEmail(Job[Queues], queue=Queues.EMAILS, retry=RetryPolicy.fixed(5, timedelta(seconds=1))):
    """A job."""

    to: str
    copies: int = 1
    tags: list[str] = dataclasses.field(default_factory=list)


class Resize(Job[Queues], queue=Queues.IMAGES, name="resize"):
    """Another job."""

    path: str


app = Queuey(Queues)
handlers = Handlers(Queues)


@app.handler
def send_email(job: SendEmail, ctx: JobContext) -> None:
    """Take both."""
    if ctx.is_last_attempt and not job.to:
        raise Fatal(f"nobody to send {job.copies} to")


@app.handler
def resize(job: Resize) -> Fatal | None:
    """Take the job alone, and return an error."""
    return Fatal("no image") if not job.path else None


@app.handler(SendEmail)
def send_again(job: SendEmail, ctx: JobContext) -> str:
    """Name the job."""
    return f"{job.to} {ctx.attempt}"


@handlers.register
def optional(job: SendEmail, ctx: JobContext | None = None) -> int:
    """Take the context if there is one."""
    return ctx.attempt if ctx else job.copies


class Resizer:
    """A handler object."""

    def handle(self, job: Resize, ctx: JobContext) -> None:
        """Take both."""

    def retry_policy(self, job: Resize) -> RetryPolicy | None:
        """Judge each job."""
        return RetryPolicy.none() if job.path else None


handlers.register(Resize, Resizer())
handlers.register(Resize, resize)

# A decorated handler stays the function that it was.
email = SendEmail("ada@example.org", copies=2)
send_email(email, JobContext())
again: str = send_again(email, ctx=JobContext())
refused: Fatal | None = resize(Resize(path="a.png"))

job_id: UUID = app.enqueue(email)
app.enqueue_after(email, "30s", correlation_id="t-1")
app.defer(Resize("a.png"), 5)
ids: list[UUID] = app.enqueue_many([email, Resize("a.png")])
producer = Producer(MemoryBackend(), Queues)
producer.enqueue(email)
worker = app.worker(retry_overrides={Queues.EMAILS: RetryPolicy.none()})

config: QueueConfig = Queues.EMAILS.config
member: Queues | None = Queues.by_name("shop.img")
names: list[str] = [one.full_name for one in Queues]
