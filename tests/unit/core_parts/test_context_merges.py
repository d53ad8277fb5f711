"""Merge rules: one result in whatever order the steps complete."""

import itertools
import random

import pytest
from tests.unit.core_parts.documents import pack, unpack

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import MergeRule
from dalsegno.streams.core.context import Context, DeltaError, WriteRefused

POLICY = Policy()


def merged(rule: MergeRule, writes: dict, first: dict | None = None) -> bytes:
    context = Context.create(pack(first or {}), POLICY)
    for step, value in writes.items():
        ops = pack([["set", ["lease"], value]])
        context.apply(ops, POLICY, step=step, merges={"lease": rule}).adopt()
    return context.pack()


CASES = [
    (MergeRule.MAX, {"a": 3, "b": 10, "c": -1}, 10),
    (MergeRule.MIN, {"a": 3, "b": 10, "c": -1}, -1),
    (MergeRule.MAX, {"a": 2**53, "b": 2**53 + 1, "c": float(2**53)}, 2**53 + 1),
    (MergeRule.MAX, {"a": 1, "b": 1.0}, 1.0),
    (MergeRule.MIN, {"a": 0.0, "b": -0.0}, 0.0),
    (MergeRule.MAX, {"a": "b", "b": "ab", "c": "é"}, "é"),
    (MergeRule.UNION, {"a": {"x": 1}, "b": {"y": 2}, "c": {"x": 3}}, {"x": 3, "y": 2}),
    (MergeRule.UNION, {"a": {"x": 1}, "b": {"x": True}}, {"x": True}),
    (MergeRule.COLLECT, {"b": 1, "a": [2], "c": None}, {"a": [2], "b": 1, "c": None}),
]


@pytest.mark.parametrize(("rule", "writes", "expected"), CASES)
def test_every_order_gives_the_same_bytes(rule, writes, expected):
    results = {merged(rule, dict(order)) for order in itertools.permutations(writes.items())}
    assert results == {pack({"lease": expected})}


@pytest.mark.parametrize("rule", MergeRule)
def test_two_hundred_random_orders_of_many_steps_agree(rule):
    rng = random.Random(rule.value)
    maps = rule is MergeRule.UNION
    writes = {
        f"s{i}": {rng.choice("abc"): rng.randint(0, 9)} if maps else rng.randint(0, 99)
        for i in range(12)
    }
    first = {"lease": {"a": 5}} if rule in (MergeRule.UNION, MergeRule.COLLECT) else {"lease": 50}
    results = set()
    for _ in range(200):
        order = list(writes.items())
        rng.shuffle(order)
        results.add(merged(rule, dict(order), first))
    assert len(results) == 1


def test_union_takes_single_keys_too():
    context = Context.empty()
    merges = {"lease": MergeRule.UNION}
    for step, key in (("b", "y"), ("a", "x")):
        ops = pack([["set", ["lease", key], step]])
        context.apply(ops, POLICY, step=step, merges=merges).adopt()
    assert unpack(context.pack()) == {"lease": {"x": "a", "y": "b"}}


@pytest.mark.parametrize(
    ("rule", "first", "op"),
    [
        (MergeRule.MAX, {}, ["set", ["lease"], [1]]),
        (MergeRule.MAX, {}, ["set", ["lease"], True]),
        (MergeRule.MAX, {}, ["set", ["lease"], None]),
        (MergeRule.MAX, {}, ["set", ["lease"], float("nan")]),
        (MergeRule.MIN, {"lease": "text"}, ["set", ["lease"], 1]),
        (MergeRule.UNION, {}, ["set", ["lease"], 1]),
        (MergeRule.UNION, {"lease": 1}, ["set", ["lease"], {}]),
        (MergeRule.UNION, {"lease": {}}, ["set", ["lease", "a", "b"], 1]),
        (MergeRule.COLLECT, {"lease": 1}, ["set", ["lease"], 1]),
        (MergeRule.COLLECT, {"lease": {}}, ["set", ["lease", "a"], 1]),
        (MergeRule.MAX, {"lease": 1}, ["del", ["lease"]]),
        (MergeRule.UNION, {"lease": {"a": []}}, ["app", ["lease", "a"], [1]]),
    ],
)
def test_what_does_not_suit_the_rule_is_refused(rule, first, op):
    context = Context.create(pack(first), POLICY)
    with pytest.raises(DeltaError):
        context.apply(pack([op]), POLICY, step="s", merges={"lease": rule})
    assert unpack(context.pack()) == first


def test_declared_writes_come_before_merge_rules_and_a_person_is_bound_by_none():
    context = Context.create(pack({"lease": 5}), POLICY)
    merges = {"lease": MergeRule.MAX}
    ops = pack([["set", ["lease"], 1]])
    with pytest.raises(WriteRefused):
        context.apply(ops, POLICY, step="s", merges=merges, allowed=frozenset())
    context.apply(ops, POLICY, merges=merges).adopt()
    assert unpack(context.pack()) == {"lease": 1}
