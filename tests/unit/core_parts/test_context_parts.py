"""Parts in the changelog: bounded per change, the same in every fold, enough for a restore."""

import random

import msgspec
import pytest
from tests.unit.core_parts.documents import pack, unpack

from dalsegno.schemas.control import Policy
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.context_field import CHUNK_BYTES
from dalsegno.streams.core.context_store import PAGE_BYTES, SMALL_BYTES

POLICY = Policy()


def written(context: Context) -> int:
    return sum(len(key) + len(part or b"") for key, part in context.drain_dirty())


def apply(context: Context, *ops: list) -> None:
    context.apply(pack(list(ops)), POLICY).adopt()


def test_small_fields_of_a_short_context_share_one_part():
    context = Context.create(pack({f"f{i}": i for i in range(5)}), POLICY)
    [(key, part)] = context.parts()
    assert key == b"p\x00\x01\x00\x00"
    assert unpack(part) == {f"f{i}": i for i in range(5)}


def test_an_empty_context_has_no_parts_and_says_when_its_last_one_is_gone():
    context = Context.create(pack({"f": 1}), POLICY)
    context.drain_dirty()
    apply(context, ["del", ["f"]])
    assert context.drain_dirty() == [(b"p\x00\x01\x00\x00", None)]
    assert context.parts() == []
    assert Context.load([]).pack() == context.pack() == pack({})


def test_a_thousand_small_fields_cost_no_more_per_change_than_ten():
    per_change = {}
    for fields in (10, 1_000):
        context = Context.empty()
        total = 0
        for i in range(fields):
            apply(context, ["set", [f"field {i}"], {"value": i, "text": "x" * 30}])
            total += written(context)
        per_change[fields] = total / fields
    # Doublings of the pages are in these figures.
    assert per_change[1_000] <= 2 * per_change[10] + PAGE_BYTES


def test_appends_to_a_large_field_write_in_proportion_to_what_they_append():
    items = [{"role": "tool", "text": "y" * 80, "number": i} for i in range(3_000)]
    context = Context.create(pack({"messages": items[:10]}), POLICY)
    context.drain_dirty()
    total = 0
    for item in items[10:]:
        apply(context, ["app", ["messages"], [item]])
        total += written(context)
    appended = sum(len(pack(item)) for item in items[10:])
    assert total < 6 * appended
    assert unpack(context.pack())["messages"] == items
    # What a restore reads stays in proportion to the field.
    assert sum(len(part) for _, part in context.parts()) < 2.1 * context.size_bytes
    assert len(context.parts()) < 2 + context.size_bytes / (CHUNK_BYTES / 2)


def test_a_field_moves_between_page_and_base_with_its_size():
    context = Context.create(pack({"f": []}), POLICY)
    sizes = set()
    for _ in range(60):
        apply(context, ["app", ["f"], ["x" * 10]])
        sizes.add(context.parts()[0][0][:1])
    assert sizes == {b"p", b"b"}
    apply(context, ["spl", ["f"], 0, 59, []])
    # Its base is longer than what it holds now; the next base is due by the rule, not at once.
    copy = Context.load(context.parts())
    for _ in range(40):
        for each in (context, copy):
            apply(each, ["app", ["f"], ["y"]])
            apply(each, ["spl", ["f"], 0, 1, []])
        assert copy.parts() == context.parts()
        assert copy.pack() == context.pack()
    assert len(context.pack()) <= SMALL_BYTES


@pytest.mark.parametrize("seed", range(10))
def test_parts_do_not_depend_on_when_they_are_read_restored_or_released(seed):
    rng = random.Random(seed)
    plain = Context.create(pack({"log": ["x" * 40] * 12, "map": {}}), POLICY)
    moved = Context.load(plain.parts())
    for i in range(400):
        ops = [["app", ["log"], [{"n": i, "text": "t" * rng.randint(0, 60)}]]]
        if rng.random() < 0.3:
            ops.append(["set", [f"f{rng.randint(0, 60)}"], "v" * rng.randint(0, 400)])
        if rng.random() < 0.1:
            ops.append(["set", ["map", f"k{i}"], i])
        if rng.random() < 0.05:
            ops.append(["set", ["log"], ["x" * 40] * rng.randint(1, 20)])
        apply(plain, *ops)
        apply(moved, *ops)
        draw = rng.random()
        if draw < 0.1:
            shuffled = moved.parts()
            rng.shuffle(shuffled)
            moved = Context.load(shuffled)
        elif draw < 0.2:
            moved.release()
        elif draw < 0.4:
            moved.drain_dirty()
            moved.pack()
        elif draw < 0.5:
            moved.apply(pack([["app", ["log"], ["gone"]], ["del", ["map"]]]), POLICY).discard()
        assert moved.parts() == plain.parts()
        assert moved.size_bytes == plain.size_bytes
    assert moved.pack() == plain.pack()


def test_a_part_that_is_none_of_ours_is_an_error():
    with pytest.raises(ValueError, match="not a part"):
        Context.load([(b"x", b"")])
    with pytest.raises(ValueError, match="without a base"):
        Context.load([(b"d\x00\x00\x00\x00f", pack([1]))])
    with pytest.raises(msgspec.DecodeError):
        Context.load([(b"p\x00\x01\x00\x00", b"\xc1")])


def test_names_of_any_language_come_back():
    fields = {"поле": 1, "champ é": "x" * 500, "名": b"\x00" * 300}
    context = Context.create(pack(fields), POLICY)
    for _ in range(3):
        apply(context, ["cat", ["champ é"], "ü"])
    assert unpack(Context.load(context.parts()).pack()) == fields | {"champ é": "x" * 500 + "üüü"}
