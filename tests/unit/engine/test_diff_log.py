"""Each step's context diff is a debug line with the run id; it costs nothing while debug is off."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from tests.unit.core.log import Log, plan_of, step

from dalsegno.ops.logs import LogLevel, configure
from dalsegno.streams.engine.metrics import EngineMetrics


@pytest.fixture
def root() -> Iterator[None]:
    """The process's loggers, as they were afterwards."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    structlog.reset_defaults()


def logged(level: LogLevel) -> list[dict[str, object]]:
    """The lines of an engine that saw a run with a secret end its first step."""
    out = io.StringIO()
    configure(level, out, json=True)
    log, signals = Log(), EngineMetrics().signals
    plan = plan_of(step("s", writes=("score", "card"), timeout_ms=10_000), secrets=("card",))
    ops = [["set", ["score"], 3], ["set", ["card"], "4111"]]
    signals.outputs(log.start(plan, "run-7", {"amount": 5}))
    signals.outputs(log.began("s", run_id="run-7"))
    signals.outputs(log.done("s", run_id="run-7", ops=ops))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return [line for line in lines if line["event"] == "context changed"]


@pytest.mark.usefixtures("root")
def test_the_diff_of_each_step_is_told_with_its_run_and_without_secrets() -> None:
    first, second = logged("debug")
    assert first["run_id"] == "run-7"
    assert first["diff"]["added"] == {"/amount": ["set", 5]}  # type: ignore[index]
    assert (second["run_id"], second["step"], second["epoch"]) == ("run-7", "s", 1)
    assert second["diff"]["added"]["/score"] == ["set", 3]  # type: ignore[index]
    assert "4111" not in json.dumps([first, second])


@pytest.mark.usefixtures("root")
def test_nothing_is_told_at_the_usual_level() -> None:
    assert logged("info") == []
    assert EngineMetrics().signals._diff is None
