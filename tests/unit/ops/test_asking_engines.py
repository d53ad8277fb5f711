"""What the command line says of an engine's answers."""

from collections.abc import Iterator

import pytest
from tests.unit.client.test_engines import Engine

from dalsegno.ops.cli import app
from dalsegno.ops.kafka.engines import EngineError, Engines, NoSuchRunError


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


def test_a_search_that_was_cut_short_says_so(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty list must not pass for "there are none"."""
    monkeypatch.setattr(Engines, "find", lambda _settings: Engines([engine.url]))
    for complete in (True, False):
        engine.reply = lambda _path, said=complete: (200, {"runs": [], "complete": said})  # type: ignore[misc]
        assert app.run(["--bootstrap-servers", "127.0.0.1:1", "runs", "--state", "waiting"]) == 0
        told = capsys.readouterr()
        assert "no runs" in told.out
        assert ("a part of its runs only" in told.err) is not complete


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


def test_an_engine_that_has_just_begun_keeps_no_listing_from_the_others(engine: Engine) -> None:
    other = Engine()
    try:
        other.reply = lambda _path: (200, {"runs": [{"run_id": "r"}], "complete": True})
        asked = Engines([engine.url, other.url])
        assert asked.runs("", "", 10).runs == [{"run_id": "r"}]
        other.reply = lambda _path: (503, {"error": "starting"})
        with pytest.raises(EngineError, match=r"no engine answers .*starting.*engine` up\?"):
            asked.runs("", "", 10)
    finally:
        other.close()
