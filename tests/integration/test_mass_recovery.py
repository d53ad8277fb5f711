"""A worker pool dies under all runs at once: frozen, looked at, released, whole, on Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.mass_recovery import run_round


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_what_dies_at_once_is_found_once_held_while_frozen_and_whole_after_the_release(
    tmp_path: Path,
) -> None:
    found = run_round(tmp_path, 24, 1.0, frozen=True, every=True)
    lost, held = found["attempts found lost"], found["held while frozen"]
    assert isinstance(lost, int)
    assert isinstance(held, int)
    assert 0 < held <= lost
    assert found["found more than once"] == 0
    assert found["further attempts"] == lost
    assert found["plan of the first in line, ms"] != 0
    assert found["steps lost"] == 0
