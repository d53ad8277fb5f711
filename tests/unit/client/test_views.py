"""What a client is shown of people, sagas and fault points: read from what an engine answers."""

from __future__ import annotations

import pytest
from tests.unit.client.test_engines import dumps
from tests.unit.core.log import Log, plan_of, step
from tests.unit.people.asking import asked, decide, failed

from dalsegno.client import DecisionType, DecisionView, QuestionView, RunView, SagaView
from dalsegno.schemas.control import BreakerState, FaultPointChanged
from dalsegno.schemas.events import FailureType, RunPaused, StepFailed
from dalsegno.streams.client.views import read_run

PLAN = plan_of(
    step("reserve", compensate="release"),
    step("pay", needs=("reserve",)),
    step("release", role="compensation"),
)


def shown(log: Log) -> RunView:
    return read_run(dumps({"position": 9, "run": log.partition.run("r")}))


def failed_payment() -> Log:
    log = Log()
    log.start(PLAN)
    log.began("reserve")
    log.done("reserve", ops=[])
    log.began("pay")
    return log


def test_every_field_says_of_which_version_it_is() -> None:
    log = Log()
    log.start(
        plan_of(step("s0", writes=("f0",)), step("s1", needs=("s0",))),
        context={"first": 1}, context_schema="loan", context_schema_version=2,
    )  # fmt: skip
    log.began("s0")
    log.done("s0", context_schema_version=3)
    view = shown(log)
    assert (view.context_schema, view.context_versions) == ("loan", {"first": 2, "f0": 3})
    log.began("s1")
    log.done("s1", ops=[])
    ended = shown(log)
    assert (ended.kind, ended.context_versions) == ("ended", {"first": 2, "f0": 3})


def test_questions_and_decisions_and_the_saga_that_they_began() -> None:
    log = failed_payment()
    package = asked(failed(log, "pay"))
    view = shown(log)
    assert view.questions == (
        QuestionView(
            escalation_id="r#1",
            step="pay",
            asked="decision",
            reason="permanent",
            answer_by_ms=package.answer_by_ms,
            reminders=0,
            package_digest=package.package_digest.hex(),
        ),
    )
    assert (view.decisions, view.saga) == ((), None)
    decide(log, package, "compensate")
    decided_ms = log.now_ms
    view = shown(log)
    assert view.questions == ()
    assert view.decisions == (
        DecisionView(
            escalation_id="r#1",
            step="pay",
            decision=DecisionType.COMPENSATE,
            decided_by="ana",
            reason="it is right so",
            at_ms=decided_ms,
        ),
    )
    assert view.saga == SagaView(cause="decided", detail="decided by ana", began_ms=decided_ms)
    assert view.step("release").undoes == "reserve"
    assert view.step("pay").undoes == ""
    log.began("release")
    log.done("release", ops=[])
    ended = shown(log)
    assert ended.ended
    assert [each.decision for each in ended.decisions] == [DecisionType.COMPENSATE]


def test_the_fault_point_that_holds_a_step() -> None:
    log = Log()
    log.start(plan_of(step("pay", depends_on=("bank",))))
    log.put(
        FaultPointChanged(
            partition=0, number=1, fault_point="bank", state=BreakerState.OPEN, window=0
        )
    )
    log.began("pay")
    kind = FailureType.DEPENDENCY
    log.put(StepFailed(run_id="r", step="pay", epoch=1, failure_type=kind, dependency="bank"))
    log.tick(60)
    held = shown(log).step("pay")
    assert (held.state, held.held_by, held.fault_point) == ("held", "point:bank", "bank")


@pytest.mark.parametrize(("source", "by"), [("ana", "ana"), ("", "unnamed")])
def test_who_holds_a_paused_run(source: str, by: str) -> None:
    log = failed_payment()
    log.put(RunPaused(run_id="r", request_id="p", source=source))
    assert shown(log).paused_by == by
