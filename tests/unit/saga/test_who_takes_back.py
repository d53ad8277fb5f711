"""Who takes back which effect, who is asked, and which compensations a plan may not have."""

from __future__ import annotations

import pytest
from tests.unit.core.log import Log, answers, escalations, plan_of, row, step, view
from tests.unit.saga.orders import (
    ONCE,
    confirm,
    did,
    failed,
    given,
    handoff_of,
    intend,
    take_back,
    undo,
)

from dalsegno.schemas.outputs import Outcome, RunState, StepState
from dalsegno.schemas.plan import OnFailure, UnknownPolicy


def test_an_effect_of_unknown_outcome_is_put_to_a_person_where_its_step_says_so() -> None:
    log = Log()
    log.start(
        plan_of(
            step("a", compensate="undo a", unknown=UnknownPolicy.PERSON, retry=ONCE),
            undo("undo a"),
            on_failure=OnFailure.COMPENSATE,
        )
    )
    log.began("a")
    intend(log, "a")
    out = failed(log, "a")
    assert given(out) == []
    assert (escalations(out)[0].step, escalations(out)[0].reason) == ("undo a", "unknown_effect")
    assert view(log).waiting_for == "person"


def test_each_effect_goes_to_the_compensation_that_its_intent_registered() -> None:
    log = Log()
    log.start(
        plan_of(
            step("a", compensate="undo a"),
            step("b", needs=("a",)),
            undo("undo a"),
            undo("undo x"),
            on_failure=OnFailure.COMPENSATE,
        )
    )
    log.began("a")
    intend(log, "a", "x", undo="undo x")
    confirm(log, "a", "x")
    intend(log, "a", "y")
    confirm(log, "a", "y")
    log.done("a", ops=[])
    log.began("b")
    intend(log, "b", "mail")
    confirm(log, "b", "mail")
    out = failed(log, "b")
    assert [e.effect for e in handoff_of(out, "undo a").undo] == ["y"]
    assert [e.effect for e in handoff_of(out, "undo x").undo] == ["x"]
    take_back(log, "undo x")
    assert row(log, "a").state is StepState.COMPENSATING, "one of two is done"
    take_back(log, "undo a")
    assert view(log).state is RunState.COMPENSATED


@pytest.mark.parametrize("name", ["lacking", "b", "undo b"])
def test_an_effect_that_nothing_can_take_back_goes_to_a_person(name: str) -> None:
    """A name that the plan lacks, a step that is no compensation, another step's."""
    log = Log()
    log.start(
        plan_of(
            step("a"),
            step("b", needs=("a",), compensate="undo b", retry=ONCE),
            undo("undo b"),
            on_failure=OnFailure.COMPENSATE,
        )
    )
    log.began("a")
    intend(log, "a", "x", undo=name)
    confirm(log, "a", "x")
    log.done("a", ops=[])
    log.began("b")
    out = failed(log, "b")
    assert given(out) == []
    assert (escalations(out)[0].step, escalations(out)[0].reason) == ("a", "no_way_back")
    assert view(log).state is RunState.WAITING


def test_a_service_cannot_report_a_compensation_by_itself() -> None:
    log = Log()
    log.start(
        plan_of(
            step("a", compensate="undo a"),
            undo("undo a", queue=""),
            on_failure=OnFailure.COMPENSATE,
        )
    )
    log.began("undo a", epoch=0, attempt=1)
    assert log.outcomes == [Outcome.REFUSED]
    did(log, "a")
    assert view(log).state is RunState.SUCCEEDED


def test_two_steps_with_one_compensation_are_refused_at_the_start() -> None:
    log = Log()
    out = log.start(
        plan_of(step("a", compensate="u"), step("b", compensate="u"), undo("u")), reply_to="me"
    )
    assert log.outcomes == [Outcome.REFUSED]
    assert answers(out)[0].reason == "shared_compensation"
