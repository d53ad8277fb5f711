"""Is what one release saved the fold of another? By what it means, not by its bytes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.unit.core.log import Log
from tests.unit.core.shelf import Shelf, archived
from tests.unit.core.test_layouts import again, in_force, later_release, with_an_effect

from dalsegno.schemas.control import Policy
from dalsegno.schemas.events import RunCancelled
from dalsegno.streams.core.cold import ColdHead
from dalsegno.streams.core.faultpoint.actors import POINT_KEY
from dalsegno.streams.core.faultpoint.point import FaultPoint, Side
from dalsegno.streams.core.meaning import as_now
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.partition_parts import PARTITION_KEY, PartitionPart
from dalsegno.streams.core.runstate import Run, StubHead
from dalsegno.streams.core.state_codec import PREFIX_BYTES, StateCorrupt
from dalsegno.streams.core.tombstones import TOMBSTONE_KEY, Tombstone
from dalsegno.streams.engine.verify import differences

HEADER = b"rr"
Parts = dict[bytes, bytes]

encode = msgspec.msgpack.encode


def with_field(part: bytes, place: int, value: object, *, skipped: int = PREFIX_BYTES) -> bytes:
    """The part with another value in one field; `skipped`: bytes before its fields."""
    fields = msgspec.msgpack.decode(part[skipped:])
    fields[place] = value
    return part[:skipped] + encode(fields)


def test_what_the_release_before_saved_is_the_fold_of_the_one_that_has_more_fields() -> None:
    log = with_an_effect()
    saved = log.partition.parts()
    with later_release():
        folded = again(log).parts()
        unlike = {key[:1] for key in saved if saved[key] != folded[key]}
        assert unlike == {b"r", b"j"}, "the bytes are others"
        assert list(differences(folded, saved)) == []


@pytest.mark.parametrize("key", [HEADER, b"jr\0\0\0\0\0"])
def test_a_part_in_an_older_layout_that_says_another_thing_is_a_difference(key: bytes) -> None:
    log = with_an_effect()
    saved = log.partition.parts()
    if key == HEADER:
        unlike = with_field(saved[key], 3, 77)  # the run version
    else:
        effects = msgspec.msgpack.decode(saved[key])
        effects[0][1] = 9  # the epoch in which it was intended
        unlike = encode(effects)
    with later_release():
        found = list(differences(again(log).parts(), {**saved, key: unlike}))
    assert len(found) == 1
    assert key.hex() in found[0]
    assert found[0].endswith("not the same")


def test_a_new_field_that_the_fold_sets_and_the_older_part_lacks_is_a_difference() -> None:
    log = with_an_effect()
    saved = log.partition.parts()
    with later_release():
        folded = with_added(log, 7)
        assert [each[: len(HEADER.hex())] for each in differences(folded, saved)] == [HEADER.hex()]


def with_added(log: Log, value: int) -> Parts:
    """The parts of a later release in which the run's new field has a value."""
    partition = in_force(log)
    held = partition._runs.get("r")
    assert isinstance(held, Run)
    held.head = msgspec.structs.replace(held.head, added=value)
    return {**again(log).parts(), HEADER: partition.parts()[HEADER]}


def test_behind_a_rollback_what_the_newer_release_saved_is_equal_unless_it_says_more() -> None:
    log = with_an_effect()
    folded = log.partition.parts()
    with later_release():
        newer, more = again(log).parts(), with_added(log, 7)
    assert newer[HEADER] != folded[HEADER]
    assert list(differences(folded, newer)) == []
    (found,) = differences(folded, more)
    assert "a newer one wrote it" in found


def test_missing_parts_and_parts_too_many_are_differences() -> None:
    log = with_an_effect()
    saved = log.partition.parts()
    with later_release():
        folded = again(log).parts()
        (missing,) = differences(folded, {key: saved[key] for key in saved if key != HEADER})
        (more,) = differences(folded, {**saved, b"sr\0\0\7": b"\x90"})
    assert missing.endswith("missing in the changelog")
    assert more.endswith("in the changelog, not in the fold")


@pytest.mark.parametrize("damaged", [b"", b"\xc1", b"\x01\x01" + bytes(60)])
def test_a_part_that_cannot_be_read_is_a_difference(damaged: bytes) -> None:
    log = with_an_effect()
    folded = log.partition.parts()
    (found,) = differences(folded, {**folded, HEADER: damaged})
    assert "not the same: " in found


def stub() -> tuple[bytes, bytes]:
    log = with_an_effect()
    log.put(RunCancelled(run_id="r", request_id="c", source="test"))
    return HEADER, log.partition.parts()[HEADER]


def cold() -> tuple[bytes, bytes]:
    return HEADER, archived(Shelf())[0].partition.parts()[HEADER]


def tombstone() -> tuple[bytes, bytes]:
    stone = Tombstone(erasure_id="e", requested_by="p", reason="", offset=1, erased_ms=2, last_ms=3)
    return TOMBSTONE_KEY + bytes(32), encode(stone)


def point() -> tuple[bytes, bytes]:
    return POINT_KEY + b"pay", encode(FaultPoint(name="pay", sides={2: Side()}))


@pytest.mark.parametrize(
    ("kind", "made", "other"),
    [
        (StubHead, stub, 7), (ColdHead, cold, "elsewhere"), (Tombstone, tombstone, "another"),
        (FaultPoint, point, "another"),
    ],
)  # fmt: skip
def test_stubs_tombstones_and_fault_points_of_an_older_layout_are_read_too(
    kind: type[msgspec.Struct], made: Callable[[], tuple[bytes, bytes]], other: object
) -> None:
    key, part = made()
    skipped = PREFIX_BYTES if key[:1] == b"r" else 0
    start, fields = part[:skipped], msgspec.msgpack.decode(part[skipped:])
    assert len(fields) == len(kind.__struct_fields__)
    older = start + encode(fields[:-1])
    assert as_now(key, older) == as_now(key, part) == part
    assert list(differences({key: part}, {key: with_field(older, 0, other, skipped=skipped)}))
    newer = start + encode([*fields, 0, "", []])
    assert list(differences({key: part}, {key: newer})) == []
    with pytest.raises(StateCorrupt, match="a newer one"):
        as_now(key, start + encode([*fields, 0, 1]))


def test_a_policy_of_an_older_layout_is_read_too() -> None:
    part = Partition(0).parts()[PARTITION_KEY]
    policy = msgspec.to_builtins(Policy())
    place = PartitionPart.__struct_fields__.index("policy")

    def unlike(**fields: object) -> list[str]:
        saved = with_field(part, place, {**policy, **fields}, skipped=0)
        return list(differences({PARTITION_KEY: part}, {PARTITION_KEY: saved}))

    assert policy.pop("keep_expired_ms") == 0
    assert unlike() == unlike(of_the_next_release=0) == []
    assert len(unlike(steps_max=5)) == len(unlike(of_the_next_release=1)) == 1
