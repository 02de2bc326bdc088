"""A worker that reconnects, and a network that breaks under it again and again."""

import pytest

from tests.process.faults import fault_round


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_faults_at_random_moments(amqp_url: str, seed: int) -> None:
    """Every job ends as planned; what is repeated had been in hand, and nothing is lost."""
    report = fault_round(amqp_url, seed)
    assert [] == report.faults, report.log
