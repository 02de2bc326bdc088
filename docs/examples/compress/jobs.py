"""The app: one queue, one kind of job, one handler. A project of your own begins like this."""

import lzma
import zlib
from pathlib import Path

from compress.records import Record
from queuey_sync import Fatal, Job, JobContext, QueueSet, Queuey, Retryable, RetryPolicy, queue


class Queues(QueueSet, prefix="queuey-demo"):
    FILES = queue(retry=RetryPolicy.fixed(3, "1s"))


class Compress(Job[Queues], queue=Queues.FILES, name="compress"):
    source: str
    out: str


app = Queuey(Queues)


@app.handler
def compress(job: Compress, ctx: JobContext) -> None:
    record = Record(Path(job.out))
    record.started(ctx.job_id, ctx.attempt)
    source = Path(job.source)
    if has_made_up_fault(source) and ctx.attempt == 1:
        raise Retryable("a made-up fault, which is over at the second attempt")
    try:
        content = source.read_bytes()
    except FileNotFoundError as error:
        raise Fatal(error) from None  # it will not be there in a second either
    packed = lzma.compress(content)  # written in C, so several threads do this at once
    _write(target_of(source, Path(job.out)), packed)
    record.done(ctx.job_id, len(content), len(packed), fingerprint(content))


def fingerprint(content: bytes) -> list[int]:
    """Four numbers; files that have one of them in common have nearly the same words.

    Each sums up the smallest hashes of all words, for many ways to hash. This is Python's own work:
    threads do it one after the other, processes at the same time.
    """
    words = set(content.split()) or {b""}
    smallest = [min(zlib.crc32(word, way) for word in words) for way in range(64)]
    return [zlib.crc32(repr(smallest[part::4]).encode()) for part in range(4)]


def has_made_up_fault(source: Path) -> bool:
    """About one file in twenty, always the same ones."""
    return zlib.crc32(source.name.encode()) % 20 == 0


def target_of(source: Path, out: Path) -> Path:
    place = source.relative_to(source.anchor)
    return out / "files" / place.with_name(place.name + ".xz")


def _write(target: Path, content: bytes) -> None:
    """Whole or not at all: a run that is cut off and repeated leaves no half of a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(target.name + ".part")
    unfinished.write_bytes(content)
    unfinished.replace(target)
