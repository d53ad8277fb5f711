"""Where a partition is read on from; a missing place is an error, never a jump."""

import pytest

from dalsegno.streams.engine.errors import PositionLostError
from dalsegno.streams.engine.opening import start_position


def test_a_checkpoint_inside_the_log_is_the_position() -> None:
    assert start_position(0, 7, None, 0, 9) == 7
    assert start_position(0, 9, 3, 9, 9) == 9


def test_a_new_partition_begins_at_zero() -> None:
    assert start_position(0, None, None, 0, 50) == 0


@pytest.mark.parametrize(
    ("checkpoint", "committed", "low", "high", "reason"),
    [
        (None, 12, 0, 50, "no_checkpoint"),
        (None, None, 5, 50, "no_checkpoint"),
        (4, 4, 5, 50, "behind_log_start"),
        (51, 51, 0, 50, "beyond_log_end"),
    ],
)
def test_everything_else_stops_the_partition(
    checkpoint: int | None, committed: int | None, low: int, high: int, reason: str
) -> None:
    with pytest.raises(PositionLostError) as raised:
        start_position(3, checkpoint, committed, low, high)
    assert raised.value.reason == reason
    assert str(high) in str(raised.value)
