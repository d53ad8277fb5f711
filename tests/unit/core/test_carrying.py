"""Runs of a cluster that is gone, as another one takes them in."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    assert_restores,
    chain,
    handoffs,
    plan_of,
    row,
    step,
    transitions,
    view,
)
from tests.unit.core.shelf import Shelf, archived
from tests.unit.people.asking import asked, decision, failed

from dalsegno.ops.put_down import SOURCE, follow, give_up
from dalsegno.schemas.control import RecoveryFrozen, RunRestored, StallSuspected, Verdict
from dalsegno.schemas.events import (
    EffectIntended,
    RiskFlagged,
    RunPaused,
    RunResumed,
    RunStarted,
    StepCompleted,
)
from dalsegno.schemas.outputs import Outcome, RunState, StepState
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.carrying import Carried
from dalsegno.streams.core.cold import unpack_parts
from dalsegno.streams.core.effects import effect_key, recovery_key

KEY = effect_key(recovery_key("r", "s1"), "card", 0)


def carry(log: Log, *, later_ms: int = 3_600_000) -> tuple[Log, set[str]]:
    """Everything of a log into an empty one; the runs that have to be resumed there."""
    attempts: dict[tuple[str, str], Attempt] = {}
    follow(log.partition, attempts)
    paused = give_up(log.partition, attempts)
    carrying = log.partition.carrying
    found: list[Carried] = list(carrying.ended())
    for standing in carrying.live():
        each = carrying.run(standing.run_id)
        assert standing.at_rest, standing
        assert isinstance(each, Carried), each
        found.append(each)
    elsewhere = Log()
    elsewhere.now_ms = log.now_ms + later_ms
    for each in found:
        elsewhere.put(restored(each))
        assert elsewhere.outcomes[0] is Outcome.APPLIED
        elsewhere.put(restored(each))
        assert elsewhere.outcomes == [Outcome.DUPLICATE]
    assert_restores(elsewhere)
    return elsewhere, paused


def restored(each: Carried) -> RunRestored:
    return RunRestored(
        run_id=each.run_id, restore_id=SOURCE, parts=each.parts, digest=each.digest, absent=True
    )


def resume(log: Log, run_id: str = "r") -> list[object]:
    out = log.put(RunResumed(run_id=run_id, request_id="resume", source=SOURCE))
    assert log.outcomes[0] is Outcome.APPLIED
    return [(each.step, each.epoch) for each in handoffs(out)]


@pytest.mark.parametrize("began", [True, False])
def test_what_was_in_flight_goes_out_again_under_a_higher_epoch(*, began: bool) -> None:
    log = Log()
    log.start(chain(2), context={"in": 1}, ttl_ms=86_400_000)
    log.began("s0")
    log.done("s0")
    if began:
        log.began("s1")
        log.put(
            EffectIntended(run_id="r", step="s1", epoch=1, effect="card", occurrence=0, key=KEY)
        )
    before = view(log).context
    elsewhere, paused = carry(log)
    assert paused == {"r"}
    assert view(elsewhere).context == before
    assert resume(elsewhere) == [("s1", 2)]
    assert row(elsewhere, "s1").effects == began
    late = StepCompleted(run_id="r", step="s1", epoch=1, ops=msgspec.msgpack.encode([]))
    elsewhere.put(late)
    assert elsewhere.outcomes == [Outcome.SUPERSEDED]
    elsewhere.began("s1", epoch=2)
    elsewhere.done("s1", epoch=2)
    assert view(elsewhere).state is RunState.SUCCEEDED


def test_steps_in_lines_are_ready_elsewhere() -> None:
    log = Log()
    log.put(RecoveryFrozen(partition=0, number=1))
    log.start(plan_of(step("a", timeout_ms=10_000), step("b")), ttl_ms=86_400_000)
    log.began("a")
    log.put(RiskFlagged(run_id="r", flag_id="f", flag="vip"))
    failed_once(log, "a")
    assert row(log, "a").state is StepState.HELD
    elsewhere, paused = carry(log)
    assert paused == {"r"}
    assert sorted(resume(elsewhere)) == [("a", 2), ("b", 2)]
    assert view(elsewhere).flags == ("vip",)


def failed_once(log: Log, name: str) -> None:
    """An attempt is lost, and its next one waits for its time and then stands in a line."""
    log.put(
        StallSuspected(
            run_id="r", step=name, epoch=1, verdict=Verdict.SILENT,
            events_offset=log.partition.position, heartbeats_at_ms=log.now_ms,
        )
    )  # fmt: skip
    log.tick(120)


def test_a_run_that_somebody_holds_is_held_elsewhere() -> None:
    log = Log()
    log.start(chain(1), ttl_ms=86_400_000)
    log.put(RunPaused(run_id="r", request_id="p", source="ann"))
    log.began("s0")
    elsewhere, paused = carry(log)
    assert paused == set()
    assert view(elsewhere).state is RunState.PAUSED
    assert handoffs(elsewhere.tick(60)) == []


def test_what_has_ended_has_ended_elsewhere_too() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    log.done("s0")
    elsewhere, paused = carry(log)
    assert paused == set()
    same = RunStarted(run_id="r", flow="flow", flow_version=1, plan=chain(1), context=b"\x80")
    elsewhere.put(same)
    assert elsewhere.outcomes == [Outcome.DUPLICATE]
    elsewhere.put(msgspec.structs.replace(same, flow_version=2))
    assert elsewhere.outcomes == [Outcome.REFUSED]
    out = elsewhere.done("s0")
    assert elsewhere.outcomes == [Outcome.DUPLICATE]
    assert handoffs(out) == []
    assert view(elsewhere).state is RunState.SUCCEEDED


def test_a_run_that_waits_for_a_person_waits_elsewhere_and_the_answer_counts() -> None:
    log = Log()
    log.start(chain(1), ttl_ms=86_400_000)
    log.began("s0")
    package = failed(log, "s0")
    elsewhere, paused = carry(log)
    assert paused == set()
    out = elsewhere.put(decision(asked(package), "retry"))
    assert [each.epoch for each in handoffs(out)] == [2]


def test_one_whose_state_is_in_the_archive_comes_from_there() -> None:
    shelf = Shelf()
    log, _ = archived(shelf)
    ((run_id, cold),) = log.partition.carrying.archived()
    parts = shelf.segments[cold.head.segment][run_id].parts
    found = log.partition.carrying.with_plans(run_id, parts, cold.head.plan_digest)
    assert isinstance(found, Carried)
    elsewhere = Log()
    elsewhere.now_ms = log.now_ms
    (change,) = transitions(elsewhere.put(restored(found)))
    assert change.cause == "RunRestored"
    assert view(elsewhere).waiting_for == "person"


def test_a_stub_of_a_run_that_has_not_started_is_nothing_to_carry() -> None:
    log = Log()
    log.put(RiskFlagged(run_id="early", flag_id="f", flag="vip"))
    assert list(log.partition.carrying.ended()) == []
    assert list(log.partition.carrying.live()) == []


def test_what_is_not_at_rest_is_said_and_not_carried() -> None:
    log = Log()
    log.start(chain(1))
    assert [each.at_rest for each in log.partition.carrying.live()] == [False]
    assert "in flight" in str(log.partition.carrying.run("r"))


def test_half_a_stub_or_a_live_one_is_refused() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    log.done("s0")
    (ended,) = log.partition.carrying.ended()
    elsewhere = Log()
    for run_id in ("other", "r\0"):
        elsewhere.put(msgspec.structs.replace(restored(ended), run_id=run_id))
        assert elsewhere.outcomes == [Outcome.REFUSED]
    assert unpack_parts(ended.parts)[0][0] == b"rr"
