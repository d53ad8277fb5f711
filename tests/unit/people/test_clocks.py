"""Time while a person is asked: clocks that stand still, and questions that outlive restarts."""

from __future__ import annotations

import msgspec
from tests.unit.core.log import chain, handoffs, view
from tests.unit.people.asking import decide
from tests.unit.people.test_decisions import stuck

from dalsegno.schemas.events import RunPaused, RunResumed
from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.partition import Partition


def test_a_question_of_two_days_outlives_restarts_and_holds_no_worker() -> None:
    """R057: a gate of 48 hours across restarts of the service."""
    log, package = stuck(chain(1), ttl_ms=600_000_000)
    for hours in (20, 40):
        log.now_ms = package.at_ms + hours * 3_600_000
        log.tick(1)
        log.partition = Partition.restore(0, log.partition.parts().items())
        assert log.partition.in_flight == 0
    log.now_ms = package.at_ms + 48 * 3_600_000
    assert [h.step for h in handoffs(decide(log, package, "retry"))] == ["s0"]


def test_the_clock_of_the_run_stands_still_while_a_person_is_asked() -> None:
    plan = msgspec.structs.replace(chain(1), stop_clocks_for_people=True)
    log, package = stuck(plan, ttl_ms=60_000)
    log.tick(120)
    assert view(log).state is RunState.WAITING
    out = decide(log, package, "retry")
    assert handoffs(out)
    assert view(log).expires_ms == package.at_ms + 60_000 + 120_000


def test_the_clock_stands_on_when_the_run_is_paused_while_a_person_is_asked() -> None:
    plan = msgspec.structs.replace(chain(1), stop_clocks_for_people=True)
    log, package = stuck(plan, ttl_ms=60_000)
    log.put(RunPaused(run_id="r", request_id="p", source="ben"))
    log.tick(120)
    assert view(log).state is RunState.PAUSED
    decide(log, package, "retry")
    log.put(RunResumed(run_id="r", request_id="q", source="ben"))
    assert view(log).state is RunState.RUNNING
