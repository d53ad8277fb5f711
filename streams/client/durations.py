"""Durations as people write them: "20s", "1h30m", a number of milliseconds, or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta

Duration = str | int | timedelta
"""Text such as "500ms", "20s", "30m", "2h", "7d" or a sum ("1h30m"); an int is milliseconds."""

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def to_ms(value: Duration, name: str = "duration") -> int:
    """Milliseconds, never negative. Raises `ValueError` that names the setting and the accepted
    forms.
    """
    if isinstance(value, bool):
        raise ValueError(f"{name}: {value!r} is not a duration")  # noqa: TRY004 - one type for all
    if isinstance(value, int):
        ms = value
    elif isinstance(value, timedelta):
        ms = value // timedelta(milliseconds=1)
    else:
        text = value.strip().replace(" ", "")
        if not _WHOLE.fullmatch(text):
            raise ValueError(
                f"{name}: {value!r} is not a duration such as '500ms', '20s', '1h30m' or '7d'"
            )
        ms = round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))
    if ms < 0:
        raise ValueError(f"{name}: {value!r} is negative")
    return ms


def to_s(value: Duration, name: str = "duration") -> float:
    """The same in seconds."""
    return to_ms(value, name) / 1_000
