"""What an engine answers over HTTP while something is not as it should be."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request

from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.restore import RestoreProgress
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.task import TaskState
from dalsegno.streams.engine.web import EngineWeb

SESSION_S = 6.0


def engine(*, silent_s: float = 0.0, deaf_s: float = 0.0) -> EngineWeb:
    """One whose group has not heard it, or whose monitor has not heard itself, for so long."""
    web = EngineWeb(EngineSettings(), EngineMetrics())
    group = SimpleNamespace(silent_s=lambda: silent_s)
    ownership = SimpleNamespace(
        context=SimpleNamespace(joined=lambda: group),
        tasks={},
        hearing=SimpleNamespace(deaf_s=lambda _tasks, _now_s: {0: deaf_s}),
    )
    web.serve(cast("Any", ownership), cast("Any", None))
    return web


async def livez(web: EngineWeb) -> tuple[int, dict[str, object]]:
    answer = await web._livez(cast("Any", None))
    return answer.status, json.loads(cast("bytes", answer.body))


@pytest.mark.parametrize("what", ["silent_s", "deaf_s"])
async def test_it_turns_red_within_two_session_timeouts(what: str) -> None:
    """R126: a consumer that fell out of its group, or a monitor that is deaf, looked alive."""
    assert (await livez(engine(**{what: 2 * SESSION_S})))[0] == 200
    status, said = await livez(engine(**{what: 2 * SESSION_S + 0.1}))
    assert status == 503
    assert said["alive"] is False


async def test_one_that_waits_for_its_start_is_alive() -> None:
    assert (await livez(EngineWeb(EngineSettings(), EngineMetrics())))[0] == 200


async def test_a_run_of_a_partition_that_restores_is_answered_with_its_progress() -> None:
    task = SimpleNamespace(
        number=0, state=TaskState.RESTORING, events_offset=0, lag=7, fold=None, actor=None,
        error=None, missing_topics=(),
        keys=SimpleNamespace(missing=False, notice=""), progress=RestoreProgress(),
    )  # fmt: skip
    task.progress.records, task.progress.position, task.progress.end = 30, 40, 80
    layout = SimpleNamespace(partitions=1)
    web = EngineWeb(EngineSettings(), EngineMetrics())
    ownership = SimpleNamespace(context=SimpleNamespace(layout=layout), tasks={0: task})
    web.serve(cast("Any", ownership), cast("Any", SimpleNamespace(claims={})))
    for path in ("/runs/r", "/runs/r?min_offset=5&wait_ms=1"):
        request = make_mocked_request("GET", path, match_info={"run_id": "r"})
        answer = await web._run(request)
        assert answer.status == 503
        said = json.loads(cast("bytes", answer.body))
        assert said["error"] == "partition_not_ready"
        assert said["partition"]["state"] == "restoring"
        assert said["partition"]["restore"] == {
            "records": 30, "position": 40, "end": 80, "share": 0.5,
        }  # fmt: skip


async def test_metrics_say_how_many_partitions_there_are_and_of_none_while_it_starts() -> None:
    web = EngineWeb(EngineSettings(), metrics := EngineMetrics())
    group = SimpleNamespace(silent_s=lambda: 0.0)
    context = SimpleNamespace(joined=lambda: group, layout=SimpleNamespace(partitions=8))
    ownership = SimpleNamespace(context=context, tasks={}, unowned={})
    web.serve(cast("Any", ownership), cast("Any", None))
    await web._metrics_page(cast("Any", None))
    page = metrics.text().decode()
    assert "\ndalsegno_partitions_expected 8.0" in page
    assert '\ndalsegno_build_info{rules="1",version="' in page
    assert '\ndalsegno_partitions{state="ready"} 0.0' in page
    web.starting()
    await web._metrics_page(cast("Any", None))
    assert "\ndalsegno_partitions{" not in metrics.text().decode()
