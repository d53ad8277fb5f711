from datetime import timedelta

import pytest

from dalsegno.streams.client.durations import Duration, to_ms, to_s


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("500ms", 500),
        ("20s", 20_000),
        ("30m", 1_800_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("1.5s", 1_500),
        ("1 h", 3_600_000),
        (250, 250),
        (0, 0),
        (timedelta(seconds=2), 2_000),
    ],
)
def test_forms_that_people_write(value: Duration, ms: int) -> None:
    assert to_ms(value) == ms
    assert to_s(value) == ms / 1_000


@pytest.mark.parametrize(
    "value", ["", "20", "s", "20 apples", "-5s", -1, True, timedelta(seconds=-1)]
)
def test_anything_else_is_refused_with_the_name_of_the_setting(value: Duration) -> None:
    with pytest.raises(ValueError, match="timeout"):
        to_ms(value, "timeout")
