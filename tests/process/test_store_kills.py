"""Programs on one store that are killed: nothing confirmed is lost, and little runs twice."""

from pathlib import Path

import pytest

from tests.process.store_rounds import kill_round


@pytest.mark.parametrize("options", ["", "?synchronous=full"])
def test_kills_at_random_moments(tmp_path: Path, options: str) -> None:
    """Each confirmed job is done or dead, and ran twice only if a killed worker had it."""
    round_ = kill_round(tmp_path, jobs=400, seed=1, options=options)
    assert [] == round_.faults()
    assert len(round_.marks("confirmed")) >= 300
    assert round_.killed
