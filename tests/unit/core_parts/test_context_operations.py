"""Operations do what a plain model says, wholly or not at all, and lose no byte on any way."""

import random

import pytest
from tests.unit.core_parts.documents import (
    MisfitError,
    document,
    model,
    mutated,
    operation,
    pack,
    packed_fields,
    unpack,
    value,
)  # fmt: skip

from dalsegno.schemas.control import Policy
from dalsegno.streams.core.context import (
    Context,
    ContextError,
    ContextTooLarge,
    DeltaError,
    WriteRefused,
)
from dalsegno.streams.core.context_delta import ops_between

POLICY = Policy()


def context_of(fields: dict) -> Context:
    return Context.create(pack(fields), POLICY)


def apply(context: Context, *ops: list, **how) -> None:
    context.apply(pack(list(ops)), POLICY, **how).adopt()


def state(context: Context) -> tuple:
    return context.parts(), context.pack(), context.size_bytes


def test_twenty_thousand_random_pairs_come_back_byte_for_byte():
    rng = random.Random(5)
    for _ in range(20_000):
        before = document(rng, 2)
        after = document(rng, 2)
        if rng.random() < 0.7:
            after |= {name: mutated(rng, item) for name, item in before.items()}
        context = context_of(before)
        change = context.apply(ops_between(pack(before), pack(after)), POLICY)
        assert change.after.pack() == packed_fields(after)
        change.adopt()
        assert context.pack() == packed_fields(after)


@pytest.mark.parametrize("seed", range(40))
def test_random_operations_do_what_the_model_says(seed):
    rng = random.Random(seed)
    plain = document(rng)
    context = context_of(plain)
    copy = Context.load(context.parts())
    log: dict[bytes, bytes] = dict(context.parts())
    context.drain_dirty()
    for _ in range(60):
        ops = [operation(rng, plain) for _ in range(rng.randint(1, 4))]
        before = state(context)
        try:
            expected = model(plain, ops)
        except MisfitError:
            with pytest.raises(ContextError):
                context.apply(pack(ops), POLICY)
            assert state(context) == before
            continue
        change = context.apply(pack(ops), POLICY)
        assert change.after.pack() == packed_fields(expected)
        assert change.size_bytes == len(change.after.pack()) - 1
        if rng.random() < 0.3:
            change.diff(frozenset())
            change.discard()
            assert state(context) == before
            continue
        change.adopt()
        plain = expected
        assert context.size_bytes == len(context.pack()) - 1
        # Parts written as they change add up to all parts; and who reads them goes on alike.
        if rng.random() < 0.5:
            for key, part in context.drain_dirty():
                if part is None:
                    log.pop(key, None)
                else:
                    log[key] = part
            assert sorted(log.items()) == context.parts()
        if rng.random() < 0.3:
            copy = Context.load(reversed(copy.parts()))
        if rng.random() < 0.2:
            copy.release()
        copy.apply(pack(ops), POLICY).adopt()
        assert state(copy) == state(context)


def test_equality_is_of_packed_bytes():
    context = context_of({"f": 1, "deep": {"a": 0.0}})
    change = context.apply(pack([["set", ["f"], True], ["set", ["deep", "a"], -0.0]]), POLICY)
    assert change.changed == ("deep", "f")
    change.adopt()
    assert context.pack(["f", "deep"]) == pack({"f": True, "deep": {"a": -0.0}})
    same = context.apply(pack([["set", ["f"], True], ["set", ["deep", "a"], -0.0]]), POLICY)
    assert same.changed == ()
    assert same.diff(frozenset()) == b""


def test_undo_puts_every_kind_of_operation_back_in_its_order():
    fields = {"big": {"list": list(range(200)), "text": "t" * 300, "map": {"x": 1, "y": 2, "z": 3}}}
    context = context_of(fields)
    before = state(context)
    ops = [
        ["app", ["big", "list"], [1, 2]],
        ["spl", ["big", "list"], 3, 2, ["a"]],
        ["set", ["big", "list", 0], {"n": 1}],
        ["set", ["big", "list", 0, "n"], 2],
        ["cat", ["big", "text"], "more"],
        ["set", ["big", "map", "new"], 4],
        ["set", ["big", "new"], []],
    ]
    for extra in ([], [["del", ["big", "map", "y"]]], [["set", ["big"], 1]]):
        context.apply(pack([*ops, *extra]), POLICY).discard()
        assert state(context) == before
        with pytest.raises(DeltaError):
            context.apply(pack([*ops, *extra, ["del", ["nothing"]]]), POLICY)
        assert state(context) == before


def test_a_field_reached_into_then_set_then_reached_into_again_is_left_alone_on_discard():
    context = context_of({"big": {"list": list(range(200))}})
    before = state(context)
    ops = [
        ["app", ["big", "list"], [1]],
        ["set", ["big"], {"list": []}],
        ["app", ["big", "list"], [2]],
    ]
    change = context.apply(pack(ops), POLICY)
    assert unpack(change.after.pack()) == {"big": {"list": [2]}}
    change.discard()
    assert state(context) == before
    apply(context, *ops)
    assert unpack(context.pack()) == {"big": {"list": [2]}}


def test_an_abandoned_change_leaves_nothing_behind():
    context = context_of({"big": {"list": list(range(200))}})
    before = state(context)
    context.apply(pack([["app", ["big", "list"], [1]], ["set", ["new"], 1]]), POLICY)
    assert context.missing(["new"]) == ("new",)
    assert state(context) == before


def test_only_declared_fields_change():
    context = context_of({"mine": 1, "other": {"k": 1}})
    before = state(context)
    allowed = frozenset({"mine"})
    for op in (
        ["set", ["other"], 1],
        ["set", ["other", "k"], 1],
        ["del", ["other"]],
        ["app", ["other"], []],
        ["set", ["new"], 1],
        ["set", [], {"mine": 1}],
        ["set", [], {"mine": 1, "other": {"k": 2}}],
    ):
        with pytest.raises(WriteRefused) as refused:
            context.apply(pack([["set", ["mine"], 2], op]), POLICY, allowed=allowed, step="s")
        assert refused.value.step == "s"
        assert refused.value.field in {"other", "new"}
        assert state(context) == before
    apply(context, ["set", [], {"mine": 5, "other": {"k": 1}}], allowed=allowed, step="s")
    assert unpack(context.pack()) == {"mine": 5, "other": {"k": 1}}


@pytest.mark.parametrize(
    ("ops", "path"),
    [
        ([["del", []]], ""),
        ([["set", [], 1]], ""),
        ([["app", [], []]], ""),
        ([["set", [0], 1]], "/0"),
        ([["set", ["m", "x", "y"], 1]], "/m/x"),
        ([["set", ["l", 3], 1]], "/l/3"),
        ([["set", ["l", "0"], 1]], "/l/0"),
        ([["set", ["m", 0], 1]], "/m/0"),
        ([["set", ["l", True], 1]], "/l"),
        ([["set", ["l", -1], 1]], "/l"),
        ([["set", ["l", 1.0], 1]], "/l"),
        ([["set", ["t", 0], "x"]], "/t/0"),
        ([["del", ["l", 0]]], "/l/0"),
        ([["del", ["m", "none"]]], "/m/none"),
        ([["app", ["m"], []]], "/m"),
        ([["app", ["l"], "items"]], "/l"),
        ([["cat", ["l"], "x"]], "/l"),
        ([["cat", ["t"], b"x"]], "/t"),
        ([["cat", ["t"], 1]], "/t"),
        ([["spl", ["l"], 0, 4, []]], "/l"),
        ([["spl", ["l"], -1, 0, []]], "/l"),
        ([["spl", ["l"], 0, True, []]], "/l"),
        ([["spl", ["l"], 0, 0, {}]], "/l"),
        ([["set", ["a/b~c"], 2**63]], "/a~1b~0c"),
        ([["set", ["deep"], {"a": [0, {"b": {1: 2}}]}]], "/deep/a/1/b"),
        ([["set", ["bad\x00name"], 1]], "/bad\x00name"),
        ([["set", [""], 1]], "/"),
        ([["set", ["x" * 129], 1]], "/" + "x" * 129),
        ([["append", ["l"], []]], ""),
        ([["set", ["l"]]], ""),
        ([["set", "l", 1]], ""),
        ([[]], ""),
        (["set"], ""),
        ({"set": 1}, ""),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_path_and_changes_nothing(ops, path):
    context = context_of({"m": {"a": 1}, "l": [1, 2, 3], "t": "text"})
    before = state(context)
    with pytest.raises(DeltaError) as refused:
        context.apply(pack(ops), POLICY)
    assert refused.value.path == path
    assert state(context) == before


def test_sixty_thousand_malformed_inputs_raise_the_typed_error_and_nothing_else():
    rng = random.Random(7)
    plain = {"m": {"a": {"b": [1, {"c": "text"}]}}, "l": [1, [2], "t"], "t": "text"}
    context = context_of(plain)
    before = state(context)
    refused = 0
    while refused < 60_000:
        data = _malformed(rng, plain)
        try:
            change = context.apply(data, POLICY)
        except ContextError:
            refused += 1
        else:
            change.discard()
        if refused % 1_000 == 0:
            assert state(context) == before
    assert state(context) == before


def _malformed(rng: random.Random, plain: dict) -> bytes:
    good = pack([operation(rng, plain) for _ in range(rng.randint(1, 3))])
    draw = rng.random()
    if draw < 0.25:
        return good[: rng.randrange(len(good))]
    if draw < 0.5:
        broken = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        return bytes(broken)
    if draw < 0.6:
        return good + rng.randbytes(rng.randint(1, 5))
    if draw < 0.7:
        return rng.randbytes(rng.randint(0, 40))
    if draw < 0.72:
        return b"\x91" * rng.randint(60, 5_000) + b"\xc0"
    parts = [rng.choice(("set", "del", "app", "cat", "spl", "SET", 1, None)) for _ in range(1)]
    parts += [value(rng, 2) for _ in range(rng.randint(0, 5))]
    return pack([parts])


def test_nesting_ends_at_a_limit_by_value_path_and_growth():
    deep: object = 0
    for _ in range(63):
        deep = [deep]
    context = context_of({"f": deep})
    with pytest.raises(DeltaError):
        context_of({"f": [deep]})
    with pytest.raises(DeltaError):
        context.apply(pack([["set", ["f"], [deep]]]), POLICY)
    with pytest.raises(DeltaError):
        context.apply(pack([["set", ["f", *[0] * 63], [1]]]), POLICY)
    apply(context, ["set", ["f", *[0] * 63], 1])
    with pytest.raises(DeltaError):
        context.apply(b"\x91" * 100_000 + b"\xc0", POLICY)


def test_limits_are_of_the_policy():
    policy = Policy(context_bytes_max=400, inline_bytes_max=100)
    with pytest.raises(ContextTooLarge) as too_large:
        Context.create(pack({"f": "x" * 100}), policy)
    assert (too_large.value.limit, too_large.value.path) == ("inline_bytes_max", "/f")
    context = Context.create(pack({"f": "x" * 90, "l": []}), policy)
    for op in (["set", ["g"], "y" * 100], ["app", ["l"], ["y" * 100]], ["cat", ["f"], "y" * 50]):
        with pytest.raises(ContextTooLarge) as too_large:
            context.apply(pack([op]), policy)
        assert too_large.value.limit == "inline_bytes_max"
    for _ in range(3):
        context.apply(pack([["app", ["l"], ["y" * 90]]]), policy).adopt()
    before = state(context)
    with pytest.raises(ContextTooLarge) as too_large:
        context.apply(pack([["app", ["l"], ["y" * 90]]]), policy)
    assert too_large.value.limit == "context_bytes_max"
    assert state(context) == before
    # A context that a new policy finds too long may still shrink, and change in place.
    tighter = Policy(context_bytes_max=100, inline_bytes_max=100)
    context.apply(pack([["spl", ["l"], 0, 1, []]]), tighter).adopt()


def test_questions_about_fields():
    context = context_of({"a": 1, "b": [1, 2]})
    assert context.missing(["a", "x", "b", "y"]) == ("x", "y")
    assert context.pack(["b", "a"]) == pack({"b": [1, 2], "a": 1})
    assert context.pack(["a", "a"]) == pack({"a": 1})
    assert context.names() == ["a", "b"]
    with pytest.raises(ContextError, match="no x"):
        context.pack(["a", "x"])
    assert context.values_digest(["a", "b"]) == context.values_digest(["b", "a", "a"])
    assert context.values_digest(["a"]) != context.values_digest(["a", "x"])
    assert context.values_digest(["a"]) != context.values_digest(["b"])
    apply(context, ["set", ["a"], True])
    assert context.values_digest(["a"]) != context_of({"a": 1}).values_digest(["a"])


@pytest.mark.parametrize(
    "data", [b"", b"\xc0", b"\x91\x01", b"\x81\x01\x02", b"\x81\xa1a", b"\xc1"]
)
def test_a_first_context_that_is_no_map_of_fields_is_refused(data):
    with pytest.raises(DeltaError):
        Context.create(data, POLICY)
