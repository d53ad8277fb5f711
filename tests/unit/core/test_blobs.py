"""Blob references in the fold: small, never followed, and found in whatever a run holds."""

from __future__ import annotations

import pytest
from tests.unit.core.log import (
    Log,
    assert_restores,
    chain,
    escalations,
    handoffs,
    plan_of,
    row,
    step,
    transitions,
    view,
)
from tests.unit.core.shelf import Shelf, leave
from tests.unit.people.asking import failed

from dalsegno.schemas import values
from dalsegno.schemas.blob import Blob
from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    InformationSupplied,
    StepCompleted,
    StepProgressed,
)
from dalsegno.schemas.outputs import Outcome, StepState
from dalsegno.schemas.plan import ContextField, FieldType, Risk
from dalsegno.schemas.values import Value
from dalsegno.streams.core.effects import effect_key, recovery_key
from dalsegno.streams.core.partition import Partition

BLOB = Blob.of(b"a document" * 500_000)
OTHER = Blob.of(b"another")


def completed(name: str, **fields: Value) -> StepCompleted:
    ops: Value = [["set", [field], value] for field, value in fields.items()]
    return StepCompleted(run_id="r", step=name, epoch=1, ops=values.pack(ops))


def held(log: Log, run_id: str = "r") -> set[bytes]:
    """What it holds, in memory and as the changelog has it."""
    found = log.partition.references(run_id)
    again = Partition.restore(log.partition.number, log.partition.parts().items())
    assert again.references(run_id) == found
    return found


def reading() -> Log:
    """s0 writes f0, s1 reads it."""
    log = Log()
    log.start(
        plan_of(
            step("s0", writes=("f0",), may_write=("g",)),
            step("s1", needs=("s0",), reads=("f0",), writes=("f1",)),
        )
    )
    log.began("s0")
    return log


def test_a_reference_goes_to_the_next_step_as_it_is() -> None:
    log = reading()
    [handoff] = handoffs(log.put(completed("s0", f0=BLOB)))
    assert values.unpack(handoff.inputs) == {"f0": BLOB}
    assert len(handoff.inputs) < 64
    assert values.unpack(view(log).context) == {"f0": BLOB}
    assert_restores(log)


def test_a_context_counts_a_reference_by_its_own_size_and_a_value_by_the_values() -> None:
    log = reading()
    log.policy(inline_bytes_max=100, context_bytes_max=200)
    log.put(completed("s0", f0=BLOB, g=[BLOB]))
    assert row(log, "s0").state is StepState.COMPLETED
    log = reading()
    log.policy(inline_bytes_max=100, context_bytes_max=200)
    log.put(completed("s0", f0="x" * 101))
    assert row(log, "s0").state is not StepState.COMPLETED


def test_the_diff_has_the_reference_and_not_the_bytes() -> None:
    log = reading()
    [done, *_] = [t for t in transitions(log.put(completed("s0", f0=BLOB))) if t.diff]
    assert values.unpack(done.diff) == {
        "added": {"/f0": ["set", BLOB]}, "changed": {}, "removed": [],
    }  # fmt: skip


def test_the_same_reference_again_changes_nothing() -> None:
    log = Log()
    log.start(plan_of(step("s0", writes=("f0",))), context={})
    log.began("s0")
    log.put(completed("s0", f0=BLOB))
    version = view(log).run_version
    log.put(completed("s0", f0=BLOB))
    assert log.outcomes == [Outcome.DUPLICATE]
    assert view(log).run_version == version


def test_what_a_run_holds_is_found_in_context_saves_journal_and_waiting_events() -> None:
    log = reading()
    log.put(StepProgressed(run_id="r", step="s0", epoch=1, progress=1, save=values.pack(OTHER)))
    assert held(log) == {OTHER.digest}
    third, fourth = Blob.of(b"3"), Blob.of(b"4")
    key = effect_key(recovery_key("r", "s0"), "e", 0)
    log.put(
        EffectIntended(
            run_id="r", step="s0", epoch=1, effect="e", occurrence=0, key=key,
            undo_input=values.pack([third]),
        )
    )  # fmt: skip
    log.put(
        EffectConfirmed(
            run_id="r", step="s0", epoch=1, effect="e", occurrence=0, result=values.pack(fourth)
        )
    )
    assert held(log) == {OTHER.digest, third.digest, fourth.digest}
    log.put(completed("s0", f0={"deep": [BLOB]}))
    assert BLOB.digest in held(log)


def test_an_event_that_waits_for_its_start_holds_what_it_names() -> None:
    log = Log()
    log.put(completed("s0", f0=BLOB))
    assert view(log).kind == "early"
    assert held(log) == {BLOB.digest}


def test_a_failed_attempt_leaves_nothing_held() -> None:
    log = reading()
    log.put(completed("s0", elsewhere=BLOB))
    assert row(log, "s0").state is not StepState.COMPLETED
    assert held(log) == set()


def test_a_field_that_is_replaced_lets_go_of_its_blob() -> None:
    log = Log()
    log.start(
        plan_of(
            step("s0", writes=("f0",)),
            step("s1", needs=("s0",), writes=("f0",)),
            step("s2", needs=("s1",), writes=("f2",)),
        )
    )
    log.began("s0")
    log.put(completed("s0", f0=BLOB))
    log.began("s1")
    log.put(completed("s1", f0=OTHER))
    assert held(log) == {OTHER.digest}


def test_an_ended_run_holds_what_its_stub_shows_until_that_goes() -> None:
    log = Log()
    log.policy(stub_keep_ms=60_000)
    log.start(chain(1))
    log.began("s0")
    log.put(completed("s0", f0=BLOB))
    assert view(log).kind == "ended"
    assert held(log) == {BLOB.digest}
    log.tick(61)
    assert log.partition.run("r") is None
    assert held(log) == set()


def test_a_run_in_the_archive_holds_its_blobs_and_has_them_when_it_is_back() -> None:
    shelf = Shelf()
    log = Log()
    log.start(chain(2), context={"in": BLOB, "more": [OTHER, BLOB]})
    log.began("s0")
    failed(log, "s0")
    before = held(log)
    leave(log, shelf)
    assert view(log).kind == "archived"
    assert held(log) == before == {BLOB.digest, OTHER.digest}
    log.put(shelf.bring(log.partition, "r"))
    assert view(log).kind == "run"
    assert held(log) == before


@pytest.mark.parametrize("given", [BLOB, "text"])
def test_a_blob_fits_any_form(given: Value) -> None:
    log = Log()
    plan = plan_of(
        step("s0", reads=("f",), writes=("f0",)),
        fields=(ContextField(name="f", type=FieldType.TEXT),),
    )
    log.start(plan)
    assert row(log, "s0").state is StepState.MISSING_INFO
    log.put(
        InformationSupplied(
            run_id="r", information_id="i", origin="test",
            ops=values.pack([["set", ["f"], given]]),
        )
    )  # fmt: skip
    assert log.outcomes == [Outcome.APPLIED]


def test_a_person_is_shown_the_reference() -> None:
    log = Log()
    risky = step("pay", reads=("f",), writes=("r",), risk=Risk.MONEY, risk_reason="it is gone then")
    log.start(plan_of(risky), context={"f": BLOB})
    [package] = escalations(log.outputs)
    assert [line.value for line in package.fields if line.field == "f"] == [f'"{BLOB}"']
