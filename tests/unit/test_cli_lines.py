"""Newline-delimited JSON, cut into batches and decoded."""

from hypothesis import given
from hypothesis import strategies as st

from queuey_sync import Job, QueueSet, queue
from queuey_sync.cli.lines import batches, decode, spans


class Queues(QueueSet):
    """One queue."""

    A = queue()


class Count(Job[Queues], queue=Queues.A, name="count"):
    """A number."""

    n: int


_PIECES = st.lists(st.sampled_from([b"{}", b" ", b"\r", b"\n", b"\n\n", b"abc"]).map(bytes))


@given(_PIECES, st.integers(1, 7))
def test_batches_hold_every_line_once_however_it_arrives(pieces: list[bytes], step: int) -> None:
    """Lines and their numbers are those of the whole input, and sizes add up to its length."""
    data = b"".join(pieces)
    chunks = [data[start : start + step] for start in range(0, len(data), step)]
    arriving = iter([*chunks, b""])
    found = list(batches(lambda: next(arriving)))
    expected = [(number, text) for number, text in enumerate(data.split(b"\n"), 1) if text.strip()]
    assert expected == [(line.number, line.text) for lines, _ in found for line in lines]
    assert len(data) == sum(size for _, size in found)


@given(st.integers(1, 7))
def test_a_byte_order_mark_before_the_first_line_is_no_part_of_it(step: int) -> None:
    """However it arrives; one anywhere else stays, and so is found."""
    mark = b"\xef\xbb\xbf"
    data = mark + b"{}\n" + mark + b"{}"
    arriving = iter([*(data[start : start + step] for start in range(0, len(data), step)), b""])
    lines = [line.text for lines, _ in batches(lambda: next(arriving)) for line in lines]
    assert [b"{}", mark + b"{}"] == lines


def test_a_complete_line_waits_for_no_more_input() -> None:
    """What one read completes is given out before the next read."""
    reads: list[int] = []

    def read() -> bytes:
        reads.append(len(reads))
        return b'{"n":1}\n{"n":2}\n{"n"'

    lines, _ = next(batches(read))
    assert [1, 2] == [line.number for line in lines]
    assert [0] == reads


def test_decoding_ends_at_the_first_bad_line() -> None:
    """The jobs before a bad line are returned with it, those after it are not looked at."""
    texts = iter([b'{"n":1}\n\n{"n":2}\n{"n":"3"}\n{"n":4}\n', b""])
    lines, _ = next(batches(lambda: next(texts)))
    jobs, bad = decode(Count.__queuey__, lines)
    assert [Count(1), Count(2)] == jobs
    assert bad is not None
    assert 4 == bad.number
    assert "$.n" in str(bad.error)


@given(st.sets(st.integers(1, 30)))
def test_spans_name_exactly_the_numbers_given(numbers: set[int]) -> None:
    """Reading the text back gives the numbers."""
    read: set[int] = set()
    for part in filter(None, spans(sorted(numbers)).split(", ")):
        first, _, last = part.partition("-")
        read |= set(range(int(first), int(last or first) + 1))
    assert numbers == read
