"""The ledger against a broker in ten lines: what it sends settles exactly what was settled."""

from hypothesis import given
from hypothesis import strategies as st

from queuey_sync.backends.rabbitmq.consuming.ledger import Ack, Ledger


class _Broker:
    """What a broker does with acknowledgements on one channel, faults included."""

    def __init__(self, delivered: int) -> None:
        self.unacked = set(range(1, delivered + 1))

    def ack(self, ack: Ack) -> None:
        assert ack.tag in self.unacked, "an unknown delivery tag closes the channel"
        covered = {tag for tag in self.unacked if tag <= ack.tag} if ack.multiple else {ack.tag}
        self.unacked -= covered

    def reject(self, tag: int) -> None:
        assert tag in self.unacked
        self.unacked.remove(tag)


@given(st.data())
def test_exactly_what_is_settled_is_acked(data: st.DataObject) -> None:
    """Whatever the order and the batches, no tag is acked early, late or twice."""
    delivered = data.draw(st.integers(1, 40))
    order = data.draw(st.permutations(range(1, delivered + 1)))
    broker, ledger, settled = _Broker(delivered), Ledger(), set[int]()
    while order:
        size = data.draw(st.integers(1, len(order)))
        batch, order = order[:size], order[size:]
        rejected = data.draw(st.sets(st.sampled_from(batch)))
        for tag in rejected:
            broker.reject(tag)
        ledger.reject(rejected)
        for ack in ledger.ack([tag for tag in batch if tag not in rejected]):
            broker.ack(ack)
        settled.update(batch)
        assert set(range(1, delivered + 1)) - settled == broker.unacked


def test_a_contiguous_prefix_is_one_frame() -> None:
    """A thousand jobs that finished in order cost one acknowledgement."""
    assert [Ack(1000, multiple=True)] == Ledger().ack(range(1000, 0, -1))


def test_a_slow_job_holds_back_nobody() -> None:
    """Everything behind an unfinished delivery is acked in the same flush, one by one."""
    ledger = Ledger()
    assert [Ack(2, multiple=False), Ack(3, multiple=False)] == ledger.ack([3, 2])
    assert [Ack(1, multiple=False)] == ledger.ack([1])
    assert [Ack(5, multiple=True)] == ledger.ack([4, 5])


def test_a_batch_that_closes_a_gap_names_an_unacked_tag() -> None:
    """The frame names the newest of the batch, not a tag that was acked before."""
    ledger = Ledger()
    ledger.ack([3])
    assert [Ack(2, multiple=True)] == ledger.ack([1, 2])
    assert [] == ledger.ack([])
