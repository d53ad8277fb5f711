"""Workers of several releases at one run: no value is ever taken for one of another version, and a
failed attempt leaves no trace.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.folding import Folding

from dalsegno.schemas.events import (
    FailureType,
    InformationSupplied,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepStarted,
)
from dalsegno.schemas.outputs import FieldVersion, Handoff, StepState
from dalsegno.schemas.plan import Plan, RetryPolicy, StepPlan
from dalsegno.streams.core import completing, dispatch
from dalsegno.streams.core.actions import Audit, Dispatch, Output
from dalsegno.streams.core.context import ContextChange
from dalsegno.streams.core.context_versions import note_versions
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.query import RunView

pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode
FIELDS = ("a", "b", "c", "d")
BASE = 2
# `of` says which version wrote a value: the model's truth, in the value itself.
FIRST = {name: {"of": BASE, "text": "first"} for name in FIELDS[:2]}

versions = st.integers(1, 4)
chosen = st.sets(st.sampled_from(FIELDS), max_size=3).map(sorted)
plans = st.lists(st.tuples(chosen, chosen, st.booleans()), min_size=2, max_size=5)
# What an attempt does: complete rightly, or fail in one of the ways that there are.
acts = st.sampled_from(
    ("done", "done", "done", "undeclared", "malformed", "no_field", "deep", "says_so", "unread")
)
stories = st.lists(st.tuples(st.integers(0, 9), acts, versions, st.booleans()), max_size=14)


def plan_of(shape: list[tuple[list[str], list[str], bool]]) -> Plan:
    """Writers one after the other, and beside them readers of what no later writer changes."""
    steps: list[StepPlan] = []
    last = ""
    for i, (reads, writes, writer) in enumerate(shape):
        name = f"s{i}"
        is_writer = writer or not i
        later = {n for _, more, also in shape[i + 1 :] if also for n in more}
        reads = [n for n in reads if n in FIRST and (is_writer or n not in later)]
        steps.append(
            StepPlan(
                name=name, queue="default", reads=tuple(reads),
                writes=(f"own{i}",), may_write=tuple(writes) if is_writer else (),
                needs=(last,) if last else (), retry=RetryPolicy(max_attempts=99),
            )
        )  # fmt: skip
        if is_writer:
            last = name
    return Plan(steps=tuple(steps))


def ops_of(step: StepPlan, act: str, version: int) -> list:
    value = {"of": version, "text": step.name}
    good = [["set", [name], value] for name in (*step.writes, *step.may_write)]
    if act == "undeclared":
        return [*good, ["set", ["elsewhere"], value]]
    if act == "malformed":
        return [*good, ["set", ["own"]]]
    if act == "no_field":
        return good[1:]
    if act == "deep":
        # Into a field that this change sets as a whole: allowed, whatever it held before.
        return [*good, ["set", [step.writes[0], "text"], "changed"]]
    return good


class Story:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.folding = Folding()
        self.open: dict[str, Handoff] = {}
        self.done: set[str] = set()
        start = RunStarted(
            run_id="r", flow="f", flow_version=1, plan=plan, context=pack(FIRST),
            context_schema="doc", context_schema_version=BASE,
        )  # fmt: skip
        self.take(self.folding.append(start))
        assert self.view().kind == "run", "the plan is good"

    def take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output.action, Dispatch):
                handoff = output.action.handoff
                self.open[handoff.step] = handoff
                self.check(handoff)

    def check(self, handoff: Handoff) -> None:
        said = {each.field: each.version for each in handoff.field_versions}
        inputs = unpack(handoff.inputs)
        assert set(said) <= set(inputs), "versions of fields that are not handed over"
        for name, value in inputs.items():
            version = said.get(name, handoff.context_schema_version)
            assert version == value["of"], f"{name} was written by {value['of']}"

    def view(self) -> RunView:
        view = self.folding.partition.run("r")
        assert view is not None
        return view

    def facts(self) -> tuple[object, ...]:
        view = self.view()
        return view.context, view.field_versions

    def act(self, place: int, act: str, version: int) -> None:
        if not self.open:
            return
        name = sorted(self.open)[place % len(self.open)]
        handoff = self.open.pop(name)
        step = next(each for each in self.plan.steps if each.name == name)
        self.folding.append(StepStarted(run_id="r", step=name, epoch=handoff.epoch, worker="w"))
        before = self.facts()
        event: StepCompleted | StepFailed = StepCompleted(
            run_id="r", step=name, epoch=handoff.epoch, ops=pack(ops_of(step, act, version)),
            context_schema_version=version,
        )  # fmt: skip
        if act == "says_so":
            event = StepFailed(
                run_id="r", step=name, epoch=handoff.epoch, failure_type=FailureType.INVALID
            )
        elif act == "unread":
            assert isinstance(event, StepCompleted)
            event = msgspec.structs.replace(event, ops=b"\xc1")
        outputs = self.folding.append(event)
        self.take(outputs)
        (audit,) = (o.action.transition for o in outputs if isinstance(o.action, Audit))
        completed = any(
            change.step == name and change.after is StepState.COMPLETED for change in audit.changes
        )
        assert completed == (act in {"done", "deep"})
        if not completed and self.view().kind == "run":
            assert self.facts() == before, "a failed attempt left a trace"
            assert audit.diff == b""

    def supply(self, version: int) -> None:
        event = InformationSupplied(
            run_id="r",
            information_id=f"i{len(self.folding.log)}",
            ops=pack([["set", ["a"], {"of": version, "text": "supplied"}]]),
            origin="test",
            context_schema_version=version,
        )
        self.take(self.folding.append(event))


@settings(deadline=None)
@given(plans, stories)
def test_no_value_is_taken_for_one_of_another_version(
    shape: list[tuple[list[str], list[str], bool]], story: list[tuple[int, str, int, bool]]
) -> None:
    told = Story(plan_of(shape))
    for place, act, version, crash in story:
        if place == 9:
            told.supply(version)
        else:
            told.act(place, act, version)
        if crash:
            told.folding.capture()
            told.folding.crash()
    told.folding.check_from_zero()


def _forgets(*_: object) -> tuple[FieldVersion, ...]:
    return ()


def _takes_all_for_new(draft: Draft, change: ContextChange, written: int) -> None:
    draft.head.field_versions = tuple((name, written) for name in draft.context.names())


def _keeps_what_failed(draft: Draft, change: ContextChange, written: int) -> None:
    note_versions(draft, change, written)
    # As if the attempt's versions had been noted in the run itself, not in the draft.
    draft.run.head.field_versions = draft.head.field_versions


@pytest.mark.parametrize(
    ("module", "name", "bug"),
    [
        (dispatch, "of_fields", _forgets),
        (completing, "note_versions", _takes_all_for_new),
        (completing, "note_versions", _keeps_what_failed),
    ],
)
def test_a_deliberate_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, bug: object
) -> None:
    monkeypatch.setattr(module, name, bug)
    drawn = settings(deadline=None, database=None, derandomize=True, max_examples=400)
    inner = test_no_value_is_taken_for_one_of_another_version.hypothesis.inner_test  # type: ignore[attr-defined]
    with pytest.raises((AssertionError, ExceptionGroup)):
        drawn(given(plans, stories)(inner))()
