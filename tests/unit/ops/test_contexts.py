"""Contexts followed through a fold: compared between versions, and rehearsed against new code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NotRequired, TypedDict

import pytest
from tests.unit.core.log import Log, pack, plan_of, step

from dalsegno.client import ContextSchema, Secret
from dalsegno.ops.comparing import NoSuchVersion, of_versions
from dalsegno.ops.folding import Folded
from dalsegno.ops.following import HeldContext, follow, held_context
from dalsegno.ops.migrating import Rehearsal, migration_faults
from dalsegno.ops.replaying import lines_of
from dalsegno.ops.run_view import context_lines
from dalsegno.schemas import values
from dalsegno.schemas.blob import Blob
from dalsegno.schemas.control import ErasureRequested
from dalsegno.schemas.events import InformationSupplied, RunCancelled
from dalsegno.schemas.outputs import RunState
from dalsegno.storage.blobs.errors import BlobMissing
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.jsonable import jsonable

PLAN = plan_of(
    step("s0", writes=("f0",)),
    step("s1", writes=("f1",), may_write=("f0",), needs=("s0",)),
    secrets=("card",),
)


def folded(log: Log) -> Iterator[Folded]:
    """The log, folded anew."""
    partition = Partition(log.partition.number)
    for record in log.records:
        yield Folded(record, partition.apply(record), partition)


def seen(log: Log, run_id: str = "r") -> list[HeldContext]:
    return [held_context(run) for run in follow(folded(log), lambda run: run.id == run_id)]


def last(log: Log) -> HeldContext:
    return seen(log)[-1]


def rehearsed(log: Log, made: ContextSchema, flow: str = "lending", **options: bool) -> Rehearsal:
    rehearsal = Rehearsal(flow, made, **options)
    rehearsal.partition(folded(log))
    return rehearsal


def a_run(*, ended: bool = True, run_id: str = "r", **fields: object) -> Log:
    log = Log()
    log.start(
        PLAN, run_id, {"card": "4111", "kept": 1}, context_schema="doc", flow="lending", **fields
    )
    log.began("s0", run_id=run_id)
    log.done("s0", run_id=run_id, ops=[["set", ["f0"], {"a": [1, 2], "b": "x"}]])
    log.began("s1", run_id=run_id)
    if ended:
        ops = [["set", ["f1"], "new"], ["set", ["f0"], {"a": [1, 2, 3], "b": "x"}]]
        log.done("s1", run_id=run_id, ops=ops, context_schema_version=2)
    return log


def test_a_run_is_followed_to_its_end_included() -> None:
    found = seen(a_run())
    contexts = [values.unpack_map(each.context) for each in found]
    assert [sorted(each) for each in contexts[-2:]] == [
        ["card", "f0", "kept"],
        ["card", "f0", "f1", "kept"],
    ]
    ended = [each.state is RunState.SUCCEEDED for each in found]
    assert ended == [False] * (len(found) - 1) + [True]
    assert contexts[-1]["f0"] == {"a": [1, 2, 3], "b": "x"}
    assert found[-1].versions == {"card": 1, "f0": 2, "f1": 2, "kept": 1}


def test_the_difference_of_two_versions_is_what_has_changed_between() -> None:
    found = seen(a_run())
    first, last = found[0].run_version, found[-1].run_version
    lines = lines_of(of_versions(found, "r", first, last).diff)
    assert lines == ["+ /f0 = {'a': [1, 2, 3], 'b': 'x'}", "+ /f1 = 'new'"]
    middle = found[-2].run_version
    step = of_versions(found, "r", middle, last)
    assert lines_of(step.diff) == ["+ /f0/a/2 = 3", "+ /f1 = 'new'"]
    assert step.moved == (("f0", 1, 2), ("f1", 0, 2))
    back = of_versions(found, "r", last, middle)
    assert lines_of(back.diff) == ["~ /f0/a [:+1] = []".replace("[:", "[2:"), "- /f1"]
    assert lines_of(of_versions(found, "r", last, last).diff) == []


def test_version_0_is_the_empty_context_and_secrets_are_masked_in_every_direction() -> None:
    found = seen(a_run())
    first = found[0].run_version
    for diff in (
        of_versions(found, "r", 0, first).diff,
        of_versions(found, "r", first, 0).diff,
    ):
        assert b"4111" not in diff
        assert b"card" in diff
    assert lines_of(of_versions(found, "r", 0, first).diff) == ["+ /card (secret)", "+ /kept = 1"]


def test_a_version_that_was_not_is_named_with_those_that_were() -> None:
    found = seen(a_run())
    with pytest.raises(NoSuchVersion, match=r"no run version 99 to look at \(it has: 0, 1, "):
        of_versions(found, "r", 1, 99)
    with pytest.raises(NoSuchVersion, match="no run version 99"):
        of_versions(found, "r", 0, 99)
    with pytest.raises(NoSuchVersion, match="it has: none"):
        of_versions([], "r", 0, 1)


class Doc(TypedDict):
    card: Secret[str]
    kept: str
    f0: NotRequired[dict[str, object]]
    f1: NotRequired[str]


def schema(version: int = 2) -> ContextSchema:
    made = ContextSchema("doc", Doc, version=version)
    made.upcast("kept", from_version=1)(str)
    return made


def test_what_comes_through_is_no_fault() -> None:
    found = rehearsed(a_run(), schema())
    assert (found.runs, found.fields, found.faults) == (1, 4, [])


def test_faults_name_run_field_and_both_versions() -> None:
    held = last(a_run(ended=False))
    faults = list(migration_faults(held, schema(version=3)))
    assert [(each.run_id, each.field, each.version, each.known) for each in faults] == [
        ("r", name, 1, 3) for name in ("card", "f0", "kept")
    ]
    assert {each.error for each in faults} == {"VersionMismatchError"}
    assert "no upcaster from 2 to 3" in faults[0].detail


def test_a_newer_field_is_a_fault_of_older_code() -> None:
    held = last(a_run())
    old = ContextSchema("doc", Doc)
    newer = [each.field for each in migration_faults(held, old) if "newer" in each.detail]
    assert newer == ["f0", "f1"]


def test_a_secret_is_not_told_by_the_upcaster_that_fails_on_it() -> None:
    held = last(a_run())
    made = schema()

    @made.upcast("card", from_version=1)
    def broken(card: str) -> str:
        raise ValueError(card)

    (fault,) = migration_faults(held, made)
    assert (fault.field, fault.error) == ("card", "UpcastFailed")
    assert "4111" not in str(fault)


def with_blob(log: Log, value: str) -> tuple[HeldContext, bytes]:
    packed = values.pack(value)
    event = InformationSupplied(
        run_id="r", information_id="b", ops=values.pack([["set", ["f1"], Blob.of(packed)]]),
        origin="test",
    )  # fmt: skip
    log.put(event)
    return last(log), packed


def test_a_large_value_is_read_and_goes_through_the_upcasters() -> None:
    held, packed = with_blob(a_run(ended=False), "long")
    made = schema()

    @made.upcast("f1", from_version=1)
    def shorter(text: str) -> object:
        return text if text != "long" else 7

    read: list[Blob] = []

    def read_blob(blob: Blob) -> bytes:
        read.append(blob)
        return packed

    (fault,) = migration_faults(held, made, read_blob)
    assert read == [Blob.of(packed)]
    assert (fault.field, fault.error) == ("f1", "FieldRefused")
    assert "expected a text, not a whole number" in fault.detail


def test_a_large_value_that_cannot_be_read_is_told() -> None:
    held, _ = with_blob(a_run(ended=False), "long")
    (unread,) = migration_faults(held, schema())
    assert (unread.field, unread.error) == ("f1", "BlobUnread")

    def missing(blob: Blob) -> bytes:
        raise BlobMissing(0, blob)

    (gone,) = migration_faults(held, schema(), missing)
    assert (gone.field, gone.error) == ("f1", "BlobMissing")


def test_another_schema_is_one_fault() -> None:
    held = last(a_run())
    (fault,) = migration_faults(held, ContextSchema("other", Doc))
    assert (fault.field, fault.error) == ("", "VersionMismatchError")


def test_runs_of_other_flows_and_ended_ones_are_left_out_when_asked() -> None:
    old = ContextSchema("doc", Doc)
    log = a_run()
    assert rehearsed(log, old, "elsewhere").runs == 0
    assert rehearsed(log, old, live_only=True).runs == 0
    assert [each.state for each in rehearsed(log, old).faults] == ["succeeded"] * 3
    log = a_run(ended=False)
    assert rehearsed(log, old, live_only=True).runs == 1
    log.put(RunCancelled(run_id="r", request_id="c"))
    assert rehearsed(log, old, live_only=True).runs == 0
    assert [each.state for each in rehearsed(log, old).faults] == ["cancelled"]


def test_a_run_that_was_erased_is_in_no_rehearsal() -> None:
    for ended in (False, True):
        log = a_run(ended=ended)
        assert rehearsed(log, ContextSchema("doc", Doc)).faults
        log.put(ErasureRequested(run_id="r", erasure_id="e", reason="asked", requested_by="ana"))
        after = rehearsed(log, ContextSchema("doc", Doc))
        assert (after.runs, after.fields, after.faults) == (0, 0, [])


def test_the_context_is_shown_with_versions_and_without_secrets() -> None:
    log = a_run(ended=False)
    log.put(
        InformationSupplied(
            run_id="r", information_id="i", ops=pack([["set", ["kept"], "2"]]), origin="t",
            context_schema_version=2,
        )
    )  # fmt: skip
    view = jsonable(log.partition.run("r"))
    assert isinstance(view, dict)
    lines = context_lines(view)
    assert [(each.field, each.version, each.secret) for each in lines] == [
        ("card", 1, True), ("f0", 1, False), ("kept", 2, False),
    ]  # fmt: skip
    assert lines[0].shown() == {"version": 1, "secret": True}
    assert lines[2].shown() == {"version": 2, "secret": False, "value": "2"}
