"""Forms for missing fields: made from what the plan says of fields, and checked against it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    assert_restores,
    escalations,
    handoffs,
    pack,
    plan_of,
    step,
    transitions,
    view,
)
from tests.unit.people.asking import asked, decide, failed

from dalsegno.client import Flow, FlowError
from dalsegno.schemas.control import Policy
from dalsegno.schemas.events import FailureType, InformationSupplied
from dalsegno.schemas.outputs import Escalation, Outcome, StepState
from dalsegno.schemas.package import FormField
from dalsegno.schemas.plan import ContextField, FieldType
from dalsegno.streams.core.actions import Dispatch
from dalsegno.streams.core.forms import type_of
from dalsegno.streams.core.people.lint import lint
from dalsegno.streams.core.plan import PlanRefused, compile_plan

FIELDS = (
    ContextField(name="address", type=FieldType.TEXT, text="Where the parcel goes."),
    ContextField(name="weight", type=FieldType.NUMBER),
)
PLAN = plan_of(
    step("ship", goal="Send it."),
    step("bill", needs=("ship",), reads=("address",)),
    fields=FIELDS,
    secrets=("weight",),
)
ADDRESS = FormField(
    field="address", type=FieldType.TEXT, text="Where the parcel goes.", needed_by=("bill",)
)


def started(*missing: str, **policy: object) -> tuple[Log, list[object]]:
    log = Log()
    if policy:
        log.policy(**policy)
    log.start(PLAN)
    log.began("ship")
    failure = failed(log, "ship", kind=FailureType.MISSING_INFO, missing_fields=missing)
    return log, failure


def question(*missing: str) -> tuple[Log, Escalation]:
    log, out = started(*missing)
    return log, asked(out)


def test_a_request_carries_a_form_of_what_the_plan_says_of_its_fields() -> None:
    _, package = question("address", "weight", "else")
    assert package.form == (
        ADDRESS,
        FormField(field="weight", type=FieldType.NUMBER, secret=True),
        FormField(field="else"),
    )
    short = msgspec.structs.replace(package, form=package.form[1:])
    assert any(found.startswith("form") for found in lint(short))


def test_a_suppliers_question_carries_the_same_form_and_its_answer_is_checked() -> None:
    queues = {"queues": ("default", "facts"), "supplier_queue": "facts"}
    log, out = started("address", **queues)
    (posted,) = [o.action for o in out if isinstance(o.action, Dispatch)]
    assert (posted.queue, posted.handoff.form) == ("facts", (ADDRESS,))
    wrong = InformationSupplied(
        run_id="r", information_id="i", ops=pack([["set", ["address"], 7]]), origin="crm"
    )
    out = log.put(wrong)
    (record,) = transitions(out)
    assert (record.reason, log.outcomes) == ("wrong_type", [Outcome.REFUSED])
    assert "a text, what came is a integer" in record.detail
    assert view(log).steps[0].state is StepState.MISSING_INFO
    right = pack([["set", ["address"], "Rue 1"]])
    out = log.put(msgspec.structs.replace(wrong, information_id="j", ops=right))
    assert [(h.step, h.epoch) for h in handoffs(out)] == [("ship", 2)]
    assert_restores(log)


def test_what_a_person_supplies_is_checked_and_the_question_stays_open() -> None:
    log, package = question("weight")
    decide(log, package, "supply", [["set", ["weight"], "heavy"]])
    assert log.outcomes == [Outcome.REFUSED]
    out = decide(log, package, "supply", [["set", ["weight"], 3]], decision_id="again")
    assert [h.step for h in handoffs(out)] == ["ship"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (True, "boolean"),
        (0, "integer"),
        (-1, "integer"),
        (-(2**63), "integer"),
        (2**40, "integer"),
        (1.5, "number"),
        ("", "text"),
        ("x" * 40, "text"),
        ("x" * 70_000, "text"),
        (b"", "bytes"),
        (datetime(2026, 1, 1, tzinfo=UTC), "time"),
        (datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "time"),
        (datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "time"),
        ([], "list"),
        ([1] * 20, "list"),
        ({}, "map"),
        ({str(i): i for i in range(20)}, "map"),
    ],
)
def test_the_type_of_every_packed_value_is_known(value: object, kind: str) -> None:
    assert type_of(pack(value)) == kind


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ((*FIELDS, FIELDS[0]), "duplicate_name"),
        ((ContextField(name=""),), "bad_name"),
        ((ContextField(name="a", text="t" * 241),), "bad_field"),
        ((ContextField(name="a", text="two\nlines"),), "bad_field"),
        (tuple(ContextField(name=f"f{i}") for i in range(1_001)), "bad_field"),
    ],
)
def test_fields_that_cannot_be_shown_refuse_the_plan(
    fields: tuple[ContextField, ...], code: str
) -> None:
    with pytest.raises(PlanRefused) as refused:
        compile_plan(plan_of(step("a"), fields=fields), policy=Policy(), ttl_ms=3_600_000)
    assert refused.value.code == code


def test_a_flow_declares_what_its_fields_are() -> None:
    flow = Flow("f", fields={"address": ("text", "Where the parcel goes."), "weight": "number"})
    flow.step(reads=["address"], writes=[])(lambda_of("a"))
    assert flow.plan().fields == FIELDS
    wrong = Flow("f", fields={"address": "txt"})  # type: ignore[dict-item]
    wrong.step(reads=[], writes=[])(lambda_of("a"))
    with pytest.raises(FlowError, match="txt"):
        wrong.plan()


def lambda_of(name: str) -> object:
    def body(ctx: object) -> None:
        del ctx

    body.__name__ = name
    return body


def test_a_form_stands_in_reminders_too() -> None:
    log = Log()
    log.policy(reminder_first_ms=1_000)
    log.start(PLAN)
    log.began("ship")
    failed(log, "ship", kind=FailureType.MISSING_INFO, missing_fields=("address",))
    (reminder,) = escalations(log.tick(2))
    assert (reminder.reminder, reminder.form) == (1, (ADDRESS,))
