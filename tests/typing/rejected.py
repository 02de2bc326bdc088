"""What users may not write: the checkers must report each line with a mark, and no other line.

``# E`` is a line for both of them; ``# E mypy`` and ``# E pyright`` are for one.
"""

from queuey_sync import (
    Handlers,
    Job,
    JobContext,
    MemoryBackend,
    Producer,
    QueueSet,
    Queuey,
    RetryPolicy,
    queue,
)


class Queues(QueueSet, prefix="shop"):
    """The set of the app."""

    EMAILS = queue()
    TYPO = queue(prefech=3)  # E
    TEXT = queue(prefetch="10")  # E
    PREFIX = queue(prefix="shop")  # E


class Other(QueueSet):
    """A set of another app."""

    ELSEWHERE = queue()


class SendEmail(Job[Queues], queue=Queues.EMAILS):
    """A job of the app."""

    to: str


class Foreign(Job[Other], queue=Other.ELSEWHERE):
    """A job of another app."""

    to: str


class Empty(Job[Other], queue=Other.ELSEWHERE):
    """A job of another app without fields."""


class Astray(Job[Queues], queue=Other.ELSEWHERE):  # E pyright
    """A job on a queue of another set."""

    to: str


class Misspelt(Job[Queues], queue=Queues.EMAILS, nam="a"):  # E
    """A job with an unknown keyword."""

    to: str


app = Queuey(Queues)
handlers = Handlers(Queues)
producer = Producer(MemoryBackend(), Queues)

app.enqueue(Foreign("ada"))  # E
app.enqueue_after(Foreign("ada"), "30s")  # E
app.defer(Foreign("ada"), "30s")  # E
app.enqueue_many([Foreign("ada")])  # E
app.enqueue(SendEmail)  # E
app.enqueue("mail.send")  # E
producer.enqueue(Foreign("ada"))  # E


@app.handler(Foreign)  # E
def of_another_set(job: Foreign, ctx: JobContext) -> None:
    """Handle a job of another set."""


@app.handler(Empty)  # E
def of_another_set_without_fields(job: Empty) -> None:
    """Handle a job of another set that has no fields."""


@handlers.register(Foreign)  # E
def registered(job: Foreign) -> None:
    """Handle a job of another set."""


@app.handler  # E
def no_job(job: int) -> None:
    """Take no job."""


@app.handler  # E
def too_many(job: SendEmail, ctx: JobContext, more: int) -> None:
    """Take too much."""


handlers.register(Foreign, of_another_set)  # E

SendEmail()  # E
SendEmail(to=5)  # E
SendEmail("ada").to = "bob"  # E
RetryPolicy.fixed(3)  # E
RetryPolicy.exponential(3, delay="1s")  # E
RetryPolicy.none(max_attempts=3)  # E
