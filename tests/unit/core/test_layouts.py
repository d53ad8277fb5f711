"""Digests of archived runs outlive releases: a later one that adds fields decides as this one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from tests.unit.core.log import Log, chain, view
from tests.unit.core.shelf import Shelf, leave, waiting_for_a_person
from tests.unit.people.asking import failed

from dalsegno.schemas.control import ArchiveConfirmed
from dalsegno.schemas.events import EffectConfirmed, EffectIntended, RiskFlagged
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core import journal, layouts, runstate, starting, state_codec
from dalsegno.streams.core.cold import layout_of
from dalsegno.streams.core.controls import RulesUnknown
from dalsegno.streams.core.effects import effect_key, recovery_key
from dalsegno.streams.core.layouts import LAYOUTS, Layout, NotInLayout, packed_run
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.runstate import Run

RULES = 2
"""Of the release that comes next."""
FIRST = "0155030a2577cfcc7decbd97d9737e9a1c8b098e7fb04beba44a5bac99833b7ec3"
"""The digest that a run had on the day the first layout was made."""


class RunHead(runstate.RunHead, array_like=True, kw_only=True, gc=False):
    """As a later release has it."""

    added: int = 0
    added_then: list[str] = msgspec.field(default_factory=list)


class Effect(runstate.Effect, array_like=True, frozen=True, gc=False):
    """The same."""

    added: int = 0


@contextmanager
def later_release() -> Iterator[None]:
    """Code that has three fields more, from its rules on."""
    first = LAYOUTS[1].fields
    fields = {**first, "RunHead": first["RunHead"] + 2, "Effect": first["Effect"] + 1}
    effects = msgspec.msgpack.Decoder(list[Effect])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "RunHead", RunHead)
        patch.setattr(state_codec, "_run_head", msgspec.msgpack.Decoder(RunHead))
        patch.setattr(journal, "Effect", Effect)
        patch.setattr(state_codec, "_effects", effects)
        patch.setitem(layouts._PAGES, b"j", effects)
        patch.setitem(layouts.LAYOUTS, 2, Layout(RULES, fields))
        yield


def again(log: Log, *, restored_at: int | None = None) -> Partition:
    """The same log, folded by the code of now; from a checkpoint in between if that is said."""
    partition = Partition(0)
    for record in log.records:
        if record.offset == restored_at:
            partition = Partition.restore(0, partition.parts().items())
        partition.apply(record)
    return partition


def structs_in(found: msgspec.inspect.Type) -> dict[str, int]:
    """How many fields each struct has that a type leads to."""
    seen: dict[str, int] = {}
    left = [found]
    while left:
        one = left.pop()
        if isinstance(one, msgspec.inspect.StructType):
            if one.cls.__name__ not in seen:
                seen[one.cls.__name__] = len(one.fields)
                left += [each.type for each in one.fields]
        else:
            for name in ("types", "item_types"):
                left += getattr(one, name, ())
            left += [
                inner
                for name in ("item_type", "key_type", "value_type")
                if (inner := getattr(one, name, None)) is not None
            ]
    return seen


def test_the_newest_layout_has_every_field_of_this_code() -> None:
    found = msgspec.inspect.type_info(tuple[runstate.RunHead, StepRow, runstate.Effect])
    assert structs_in(found) == LAYOUTS[max(LAYOUTS)].fields, "a field more is a layout more"


def with_an_effect() -> Log:
    """A run that waits for a person, with an effect in its journal."""
    log = Log()
    log.start(chain(2), context={"in": "x" * 400})
    log.began("s0")
    effect = {"run_id": "r", "step": "s0", "epoch": 1, "effect": "card", "occurrence": 0}
    log.put(EffectIntended(**effect, key=effect_key(recovery_key("r", "s0"), "card", 0)))
    log.put(EffectConfirmed(**effect, result=b"\xc0"))
    failed(log, "s0")
    assert {key[:1] for key in log.partition.parts()} >= {b"r", b"s", b"c", b"j"}
    return log


def test_the_first_layout_never_changes() -> None:
    log = with_an_effect()
    event = Shelf().choose(log.partition)
    assert event is not None
    assert event.run_digests[0].hex() == FIRST


@pytest.mark.parametrize("restored", [False, True])
def test_a_later_release_lets_the_same_runs_go(restored: bool) -> None:
    log, shelf = with_an_effect(), Shelf()
    leave(log, shelf)
    assert view(log).kind == "archived"
    at = log.records[-1].offset if restored else None
    with later_release():
        folded = again(log, restored_at=at)
        assert folded.parts() == log.partition.parts()
    log.put(shelf.bring(log.partition, "r"))
    with later_release():
        folded = again(log, restored_at=at)
        held = folded._runs.get("r")
        assert isinstance(held, Run)
        assert isinstance(held.head, RunHead)
        assert held.head.added_then == []
        captured = dict(folded.capture())
        assert {key: captured[key] for key in folded.parts() if key[:1] in b"rsj"} == {
            key: part for key, part in folded.parts().items() if key[:1] in b"rsj"
        }
        assert Partition.restore(0, folded.parts().items()).digest() == folded.digest()
        whole = packed_run(1, "r", held)
    assert whole == packed_run(1, "r", log.partition._runs.get("r"))  # type: ignore[arg-type]


def test_checkpoints_of_either_release_let_the_same_runs_go() -> None:
    log, _ = waiting_for_a_person()
    before = log.partition.parts()
    leave(log, Shelf())
    confirmed = log.records[-1]
    with later_release():
        newer = again_until(log, confirmed.offset).parts()
        assert newer != before, "it has more in it"
        folded = Partition.restore(0, before.items())
        folded.apply(confirmed)
        assert folded.parts() == log.partition.parts()
    for parts in (before, newer):
        older = Partition.restore(0, parts.items())
        older.apply(confirmed)
        assert older.parts() == log.partition.parts()


def again_until(log: Log, end: int) -> Partition:
    partition = Partition(0)
    for record in log.records[:end]:
        partition.apply(record)
    return partition


def test_until_its_rules_are_in_force_a_later_release_writes_what_the_one_before_finds() -> None:
    log, _ = waiting_for_a_person()
    with later_release():
        event = Shelf().choose(again(log))
        packed = Shelf().choose(Partition.restore(0, log.partition.parts().items()))
    assert event is not None
    assert event == packed == Shelf().choose(log.partition)
    assert [layout_of(digest) for digest in event.run_digests] == [1]
    log.put(event)
    assert view(log).kind == "archived"


def in_force(log: Log) -> Partition:
    """As of a log in which the rules of the later release are in force."""
    partition = again(log)
    partition._controls.rules = RULES
    return partition


def newer_word(log: Log, **fields: object) -> tuple[Partition, ArchiveConfirmed]:
    """A fold of a later release whose run has these fields set, and what its owner would say."""
    partition = in_force(log)
    held = partition._runs.get("r")
    assert isinstance(held, Run)
    held.head = msgspec.structs.replace(held.head, **fields)
    event = Shelf().choose(partition)
    assert event is not None
    return partition, event


def test_what_a_later_layout_has_is_in_its_digest_and_comes_back() -> None:
    log, _ = waiting_for_a_person()
    with later_release():
        partition, event = newer_word(log, added=7, added_then=["a"])
        assert layout_of(event.run_digests[0]) == 2
        assert event.run_digests != newer_word(log, added=8, added_then=["a"])[1].run_digests
        log.partition = partition
        shelf = Shelf()
        leave(log, shelf)
        log.put(shelf.bring(log.partition, "r"))
        held = log.partition._runs.get("r")
        assert isinstance(held, Run)
        assert (held.head.added, held.head.added_then) == (7, ["a"])  # type: ignore[attr-defined]


def test_a_run_never_leaves_in_a_layout_that_has_no_place_for_it() -> None:
    log, _ = waiting_for_a_person()
    right = Shelf().choose(log.partition)
    assert right is not None
    with later_release():
        partition, _ = newer_word(log, added=1)
        with pytest.raises(NotInLayout, match=r"RunHead\.added"):
            packed_run(1, "r", partition._runs.get("r"))  # type: ignore[arg-type]
        log.partition = partition
        log.put(right)
        assert (log.outcomes, log.partition.archived.stayed) == ([Outcome.APPLIED], 1)
        assert view(log).kind == "run"
        partition._controls.rules = 1
        assert Shelf().choose(partition) is None


def test_a_layout_that_this_code_does_not_know_stops_the_partition() -> None:
    log, _ = waiting_for_a_person()
    with later_release():
        partition, event = newer_word(log)
        brought = Shelf()
        brought.choose(partition)
    with pytest.raises(RulesUnknown, match="layout 2; this code knows 1"):
        log.put(event)
    foreign = brought.event(next(iter(brought.segments)), "r", absent=True)
    foreign = msgspec.structs.replace(foreign, digest=b"\2" + foreign.digest[1:])
    with pytest.raises(RulesUnknown, match="start a newer one"):
        Log().put(foreign)


@pytest.mark.parametrize("digest", [b"\0" + bytes(32), bytes(31) + b"\1", b"", bytes(34)])
def test_what_is_no_digest_is_refused(digest: bytes) -> None:
    log, _ = waiting_for_a_person()
    event = Shelf().choose(log.partition)
    assert event is not None
    log.put(msgspec.structs.replace(event, run_digests=(digest,)))
    assert log.outcomes == [Outcome.REFUSED]
    log.put(RiskFlagged(run_id="r", flag_id="f", flag="vip"))
    assert view(log).kind == "run"
