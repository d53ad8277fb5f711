"""What the command line says of an engine's answers."""

from collections.abc import Iterator

import pytest
from tests.unit.client.test_engines import Engine

from dalsegno.ops.kafka.engines import Engines, NoSuchRunError


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


def test_a_run_that_has_ended_has_no_plan_and_is_no_unknown_run(engine: Engine) -> None:
    engine.reply = lambda _path: (404, {"error": "unknown_run"})
    asked = Engines([engine.url])
    with pytest.raises(NoSuchRunError, match=r"^no live run r: see `dalsegno runs`$"):
        asked.plan("r", 0)
    with pytest.raises(NoSuchRunError, match=r"^no run r: see `dalsegno runs`$"):
        asked.run("r")
    engine.reply = lambda _path: (404, {"error": "erased", "erased_at_ms": 1})
    with pytest.raises(NoSuchRunError, match=r"^it was erased$"):
        asked.run("r")
