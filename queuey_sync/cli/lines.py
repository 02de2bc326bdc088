"""Newline-delimited JSON: lines as they arrive, and the jobs that they hold.

Pure but for the function that it is given to read with; publishing is in `enqueue.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from queuey_sync.errors import SerializationError
from queuey_sync.jobs import Job, JobType

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of input that is not blank; the first line has the number 1."""

    number: int
    text: bytes


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that holds no job of the type that was asked for."""

    number: int
    error: SerializationError


def batches(read: Callable[[], bytes]) -> Iterator[tuple[list[Line], int]]:
    r"""Lines as they arrive: what one read completes is one batch, so that none waits for more.

    Args:
        read: Returns some bytes, as soon as there are any; empty at the end.

    Yields:
        The complete lines that are not blank, and how many bytes were read for them.

    >>> chunks = iter([b'{"n":1}', b'\n\n{"n":2}', b""])
    >>> [[line.number for line in lines] for lines, size in batches(lambda: next(chunks))]
    [[1], [3]]
    """
    number = 0
    size = 0
    unfinished: list[bytes] = []
    while chunk := read():
        size += len(chunk)
        if b"\n" not in chunk:
            unfinished.append(chunk)
            continue
        *whole, rest = b"".join([*unfinished, chunk]).split(b"\n")
        unfinished = [rest]
        yield _not_blank(whole, number), size
        number += len(whole)
        size = 0
    yield _not_blank([b"".join(unfinished)], number), size


def without_mark(text: bytes) -> bytes:
    """The text without the byte order mark that some editors put before it; JSON has none."""
    return text.removeprefix(_BYTE_ORDER_MARK)


def _not_blank(texts: list[bytes], before: int) -> list[Line]:
    if not before:
        texts = [without_mark(texts[0]), *texts[1:]]
    return [
        Line(number, text)
        for number, text in enumerate(texts, before + 1)
        if not text.isspace() and text
    ]


def decode(job_type: JobType, lines: Sequence[Line]) -> tuple[list[Job[Any]], BadLine | None]:
    """The jobs up to the first line that holds none, and that line."""
    jobs: list[Job[Any]] = []
    for line in lines:
        try:
            jobs.append(job_type.decode(line.text))
        except SerializationError as error:
            return jobs, BadLine(line.number, error)
    return jobs, None


def reason(error: SerializationError) -> str:
    """What is wrong with a job, without the name of the error."""
    return str(error).removeprefix("serialization error: ")


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers, with runs shortened.

    >>> spans([3, 4, 5, 9, 11, 12])
    '3-5, 9, 11-12'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
