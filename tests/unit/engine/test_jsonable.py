"""What the engine's HTTP answers as JSON."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import NoReturn

from dalsegno.streams.engine.jsonable import dumps


def no_json(token: str) -> NoReturn:
    raise AssertionError(f"{token} is no JSON")


def test_what_contexts_hold_is_json_that_every_parser_takes() -> None:
    """R117: NaN in a context broke whoever parsed the answer."""
    answer = {
        "score": math.nan,
        "deep": [{"high": math.inf, "low": -math.inf}],
        "blob": b"\0",
        "at": dt.datetime(2100, 1, 1, tzinfo=dt.UTC),
    }
    assert json.loads(dumps(answer), parse_constant=no_json) == {
        "score": "nan",
        "deep": [{"high": "inf", "low": "-inf"}],
        "blob": "AA==",
        "at": "2100-01-01T00:00:00Z",
    }
