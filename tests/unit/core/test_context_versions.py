"""Which schema version each context field is of, and runs whose context nobody can read."""

import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    escalations,
    handoffs,
    pack,
    plan_of,
    row,
    step,
    transitions,
    view,
)

from dalsegno.schemas import values
from dalsegno.schemas.events import InformationSupplied, StepReleased
from dalsegno.schemas.outputs import FieldVersion, Handoff, Outcome, StepState
from dalsegno.schemas.plan import Merge, MergeRule
from dalsegno.streams.core.giving_back import MISMATCHES_MAX, VERSION_MISMATCH


def started(log: Log, version: int = 1, **fields: object) -> list[Handoff]:
    plan = plan_of(
        step("s0", writes=("f0",)),
        step("s1", writes=("f1",), needs=("s0",)),
        step("s2", reads=("first", "f0", "f1"), needs=("s1",)),
        **fields,
    )
    return handoffs(
        log.start(plan, context={"first": 1}, context_schema="loan", context_schema_version=version)
    )


def test_a_handoff_names_the_inputs_that_newer_code_has_set() -> None:
    log = Log()
    (first,) = started(log)
    assert first.field_versions == ()
    log.began("s0")
    (second,) = handoffs(log.done("s0", context_schema_version=2))
    assert second.field_versions == (), "it reads none of them"
    log.began("s1")
    (third,) = handoffs(log.done("s1", context_schema_version=1))
    assert (third.context_schema, third.context_schema_version) == ("loan", 1)
    assert third.field_versions == (FieldVersion("f0", 2),)
    assert view(log).field_versions == (("f0", 2),)
    assert_restores(log)


def test_older_code_may_write_beside_newer_code() -> None:
    log = Log()
    started(log, version=3)
    log.began("s0")
    log.done("s0", context_schema_version=2)
    log.began("s1")
    (last,) = handoffs(log.done("s1", context_schema_version=4))
    assert last.context_schema_version == 3
    assert last.field_versions == (FieldVersion("f0", 2), FieldVersion("f1", 4))


def test_what_is_left_of_an_ended_run_says_of_which_version_it_is() -> None:
    log = Log()
    log.start(
        plan_of(step("s0", writes=("f0", "card")), secrets=("card",)),
        context={"first": 1}, context_schema="loan",
    )  # fmt: skip
    log.began("s0")
    log.done("s0", ops=[["set", ["f0"], 1], ["set", ["card"], 2]], context_schema_version=2)
    ended = view(log)
    assert (ended.kind, ended.context_schema, ended.context_schema_version) == ("ended", "loan", 1)
    assert ended.field_versions == (("f0", 2),)
    assert_restores(log)


def supplied(value: object, version: int = 0, number: int = 1) -> InformationSupplied:
    return InformationSupplied(
        run_id="r",
        information_id=f"i{number}",
        ops=pack([["set", ["f0"], value]]),
        origin="test",
        context_schema_version=version,
    )


def test_who_does_not_say_a_version_leaves_the_field_its_own() -> None:
    log = Log()
    started(log)
    log.began("s0")
    log.done("s0", context_schema_version=2)
    log.put(supplied("corrected"))
    assert view(log).field_versions == (("f0", 2),)


def test_a_field_that_is_set_to_what_it_was_is_of_the_new_version() -> None:
    """Equal bytes may mean something else: 500 euros are not 500 cents."""
    log = Log()
    started(log)
    log.began("s0")
    log.done("s0", ops=[["set", ["f0"], 500]], context_schema_version=1)
    (out,) = transitions(log.put(supplied(500, version=2)))
    assert out.diff == b""
    assert view(log).field_versions == (("f0", 2),)
    log.put(supplied(500, version=1, number=2))
    assert view(log).field_versions == ()


def test_a_field_that_goes_takes_its_version_along() -> None:
    log = Log()
    started(log)
    log.began("s0")
    log.done("s0", context_schema_version=2)
    event = InformationSupplied(
        run_id="r", information_id="gone", ops=pack([["del", ["f0"]]]), origin="test"
    )
    log.put(event)
    assert view(log).field_versions == ()


@pytest.mark.parametrize(
    "ops", [[["cat", ["f0"], "more"]], [["set", ["f0", "x"], 1]], [["app", ["f0"], [1]]]]
)
def test_a_value_is_never_of_two_versions(ops: list) -> None:
    log = Log()
    plan = plan_of(step("s0", may_write=("f0",)), step("s1", may_write=("f0",), needs=("s0",)))
    log.start(plan, context={"f0": "a"})
    log.began("s0")
    held = {"cat": "b", "set": {"x": 0}, "app": []}[ops[0][0]]
    log.done("s0", ops=[["set", ["f0"], held]], context_schema_version=2)
    before = view(log).context
    log.began("s1")
    (out,) = transitions(log.done("s1", ops=ops, context_schema_version=1))
    assert (out.reason, out.diff) == ("schema_version_mixed", b"")
    assert view(log).context == before
    assert row(log, "s1").state is StepState.ESCALATED
    assert view(log).field_versions == (("f0", 2),)
    assert_restores(log)


def test_a_merge_rule_joins_values_of_one_version_only() -> None:
    log = Log()
    plan = plan_of(
        step("s0", writes=("m",)),
        step("s1", writes=("m",)),
        step("s2", writes=("m",)),
        merges=(Merge(field="m", rule=MergeRule.MAX),),
    )
    log.start(plan, context={})
    for name in ("s0", "s1", "s2"):
        log.began(name)
    log.done("s0", ops=[["set", ["m"], 1]], context_schema_version=2)
    log.done("s1", ops=[["set", ["m"], 2]], context_schema_version=2)
    assert view(log).field_versions == (("m", 2),)
    (out,) = transitions(log.done("s2", ops=[["set", ["m"], 300]], context_schema_version=1))
    assert out.reason == "schema_version_mixed"
    assert "schema version 2" in out.detail
    assert "of 1" in out.detail


@pytest.mark.parametrize("version", [-1, -(2**31)])
def test_a_version_that_is_none_is_refused(version: int) -> None:
    log = Log()
    started(log)
    log.began("s0")
    (out,) = transitions(log.done("s0", context_schema_version=version))
    assert out.reason == "bad_ops"
    assert view(log).field_versions == ()


@pytest.mark.parametrize(
    ("schema", "version", "accepted"),
    [
        ("loan", -1, False),
        ("", -1, False),
        ("loan", -(2**31), False),
        ("loan", 0, False),
        ("", 0, True),
        ("loan", 2**31 - 1, True),
    ],
)
def test_a_run_starts_with_no_version_that_is_none(
    schema: str, version: int, accepted: bool
) -> None:
    log = Log()
    out = log.start(chain(1), reply_to="me", context_schema=schema, context_schema_version=version)
    (answer,) = answers(out)
    assert answer.reason == ("" if accepted else "bad_schema_version")
    if not accepted:
        assert str(version) in answer.detail
        log.start(chain(1), context_schema=schema, context_schema_version=1)
        assert log.outcomes == [Outcome.APPLIED]


def test_a_failed_completion_moves_no_version() -> None:
    log = Log()
    plan = plan_of(step("s0", writes=("f0", "f1")))
    log.start(plan, context={})
    log.began("s0")
    (out,) = transitions(log.done("s0", ops=[["set", ["f0"], 1]], context_schema_version=2))
    assert out.reason == "no_output"
    assert view(log).field_versions == ()


def give_back(log: Log, epoch: int) -> list:
    text = "run 'r': field 'first' is of version 2, this code knows 1"
    event = StepReleased(run_id="r", step="s0", epoch=epoch, reason=VERSION_MISMATCH, detail=text)
    return log.put(event)


def test_a_context_that_no_worker_can_read_reaches_a_person_after_others_had_a_try() -> None:
    log = Log()
    started(log, version=2)
    for epoch in range(1, MISMATCHES_MAX):
        assert escalations(give_back(log, epoch)) == []
        while row(log, "s0").epoch == epoch:
            log.tick()
    (asked,) = escalations(give_back(log, MISMATCHES_MAX))
    assert (asked.step, asked.reason, asked.failure_type) == ("s0", VERSION_MISMATCH, "invalid")
    assert asked.error_class == "VersionMismatchError"
    assert asked.message == "run 'r': field 'first' is of version 2, this code knows 1"
    assert row(log, "s0").state is StepState.ESCALATED
    assert row(log, "s0").failures == 0, "no attempt was made, none is charged"
    assert_restores(log)


def test_a_worker_that_can_read_it_ends_the_row_of_mismatches() -> None:
    log = Log()
    log.start(plan_of(step("s0", writes=("f0",), timeout_ms=2_000)), context_schema_version=2)
    epoch = 1
    for _ in range(3):
        for _ in range(MISMATCHES_MAX - 1):
            assert escalations(give_back(log, epoch)) == []
            while row(log, "s0").epoch == epoch:
                log.tick()
            epoch += 1
        log.began("s0", epoch)
        while row(log, "s0").epoch == epoch:
            log.tick()
        epoch += 1
    assert row(log, "s0").state is StepState.DISPATCHED


def test_a_mismatch_is_on_the_record_with_its_words() -> None:
    log = Log()
    started(log, version=2)
    (out,) = transitions(give_back(log, 1))
    assert out.detail == "run 'r': field 'first' is of version 2, this code knows 1"


def test_a_runs_view_says_how_much_its_context_takes() -> None:
    log = Log()
    started(log)
    held = values.unpack(view(log).context or b"")
    packed = [values.pack(part) for pair in held.items() for part in pair]  # type: ignore[union-attr]
    assert view(log).context_bytes == sum(map(len, packed))
