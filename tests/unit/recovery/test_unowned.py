"""Nothing waits for nobody: checked along whole stories, and seen to find what is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.core.log import Log, chain, escalations, handoffs, plan_of, step, view
from tests.unit.people.asking import decide
from tests.unit.recovery.test_freezing import QUICK, failed, freeze, release

from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.events import FailureType, RunPaused, RunResumed, StepFailed
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.runstate import Run
from dalsegno.streams.core.step_table import PENDING, READY


def clean(log: Log) -> None:
    for partition in (log.partition, Partition.restore(0, log.partition.parts().items())):
        for run_id in list(partition.run_ids()):
            assert partition.previews.unowned(run_id) == []
            assert partition.run(run_id) is not None
            assert partition.previews.unowned(run_id) == []


def test_along_a_story_of_failures_nothing_waits_for_nobody() -> None:
    log = Log()
    log.start(
        plan_of(
            step("a", retry=QUICK),
            step("own", queue="", recover="notify"),
            step("b", needs=("a",)),
            step("c", needs=("a",), risk="money", risk_reason="small"),
            step("d", needs=("b", "c", "own")),
        )
    )
    clean(log)
    log.began("own", epoch=0, attempt=1)
    log.began("a")
    freeze(log)
    failed(log, "r", "a")
    log.tick()
    clean(log)
    release(log)
    log.began("a", epoch=2)
    log.done("a", epoch=2, ops=[])
    clean(log)
    log.began("b")
    kind = FailureType.MISSING_INFO
    log.put(StepFailed(run_id="r", step="b", epoch=1, failure_type=kind, missing_fields=("x",)))
    clean(log)
    log.put(
        StallSuspected(
            run_id="r",
            step="own",
            epoch=0,
            verdict=Verdict.SILENT,
            events_offset=log.partition.position,
            heartbeats_at_ms=log.now_ms,
        )
    )
    clean(log)
    log.put(RunPaused(run_id="r", request_id="p"))
    clean(log)


def test_a_saga_on_a_paused_run_belongs_to_who_paused_it() -> None:
    log = Log()
    plan = plan_of(
        step("a", compensate="ua"), step("b", needs=("a",)), step("ua", role="compensation")
    )
    log.start(plan)
    log.began("a")
    log.done("a", ops=[])
    log.began("b")
    failed_for_good = StepFailed(
        run_id="r", step="b", epoch=1, failure_type=FailureType.PERMANENT, message="no"
    )
    (package,) = escalations(log.put(failed_for_good))
    log.put(RunPaused(run_id="r", request_id="p", source="ana"))
    assert handoffs(decide(log, package, "compensate")) == []
    assert view(log).paused_by == "ana"
    assert view(log).saga is not None
    clean(log)
    run_of(log).head.paused_by = ""
    assert [each.why for each in log.partition.previews.unowned("r")] == ["no deadline at all"]
    run_of(log).head.paused_by = "ana"
    out = log.put(RunResumed(run_id="r", request_id="q"))
    assert [h.step for h in handoffs(out)] == ["ua"]
    assert view(log).paused_by == ""
    clean(log)


def run_of(log: Log) -> Run:
    found = log.partition._runs.get("r")
    assert isinstance(found, Run)
    return found


def no_deadline(log: Log) -> None:
    run_of(log).rows[0].due_ms = 0


def no_timer(log: Log) -> None:
    log.partition._runs.live_timers._queued.clear()


def out_of_line(log: Log) -> None:
    freeze(log)
    log.began("s0")
    failed(log, "r")
    log.tick()
    log.partition._now.recovery.holds.drop("r")


def not_given_out(log: Log) -> None:
    run_of(log).rows[0].state = READY


def never_ready(log: Log) -> None:
    run_of(log).rows[0].state = PENDING


@pytest.mark.parametrize("broken", [no_deadline, no_timer, out_of_line, not_given_out, never_ready])
def test_what_is_broken_is_found(broken: Callable[[Log], None]) -> None:
    log = Log()
    log.start(chain(2, retry=QUICK))
    clean(log)
    broken(log)
    assert log.partition.previews.unowned("r") != []
