"""Merge rules: what unordered steps write to one field becomes one value, in whatever order.

Each rule is commutative, associative and idempotent over the values written, so the order in which
steps complete does not show:

* `max`, `min`: of numbers or of texts, all of one sort. Numbers of equal value but different type
  (1, 1.0) are told apart by their packed bytes. NaN is refused: it has no order.
* `union`: maps joined by key, keys sorted. Of two values for one key the one with the greater
  packed bytes stays.
* `collect`: a map from step name to what the step wrote, names sorted.

A step sets such a field as a whole; under `union` it may set one key of it as well. A field's value
in the first context takes part like a step's.
"""

from __future__ import annotations

import math

from dalsegno.schemas.plan import MergeRule
from dalsegno.streams.core.context_errors import DeltaError, pointer
from dalsegno.streams.core.context_ops import Op
from dalsegno.streams.core.context_values import Value, pack, trusted


def merge(rule: MergeRule, old: bytes | None, op: Op, step: str) -> bytes:
    """Packed value of the field after `step` wrote to it. `old`: before, None if it had none.

    Raises `DeltaError` when the operation or a value does not suit the rule.
    """
    written = _written(rule, op)
    if rule is MergeRule.COLLECT:
        collected = _as_map(old, op)
        collected[step] = written
        return _pack_sorted(collected)
    if rule is MergeRule.UNION:
        if not isinstance(written, dict):
            raise DeltaError(pointer(op.path), "the field's merge rule is union: write a map")
        joined = _as_map(old, op)
        for key, value in written.items():
            if key not in joined or pack(joined[key]) < pack(value):
                joined[key] = value
        return _pack_sorted(joined)
    if old is None:
        _rank(written, op)
        return op.packed
    sign = 1 if rule is MergeRule.MAX else -1
    return op.packed if _compare(written, trusted(old), op) * sign > 0 else old


def _written(rule: MergeRule, op: Op) -> Value:
    if op.kind == "set" and len(op.path) == 1:
        return op.operand
    key = op.path[-1]
    if op.kind == "set" and len(op.path) == 2 and rule is MergeRule.UNION and isinstance(key, str):
        return {key: op.operand}
    allowed = (
        "set the field or one of its keys" if rule is MergeRule.UNION else "set the whole field"
    )
    raise DeltaError(pointer(op.path), f"the field's merge rule is {rule.value}: {allowed}")


def _as_map(old: bytes | None, op: Op) -> dict[str, Value]:
    value: Value = {} if old is None else trusted(old)
    if not isinstance(value, dict):
        raise DeltaError(pointer(op.path[:1]), "the field has a merge rule for maps and holds none")
    return value


def _pack_sorted(value: dict[str, Value]) -> bytes:
    return pack(dict(sorted(value.items())))


def _rank(value: Value, op: Op) -> int:
    """1 for numbers, 2 for texts."""
    if isinstance(value, str):
        return 2
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise DeltaError(pointer(op.path), "the field's merge rule compares numbers or texts")
    return 1


def _compare(new: Value, old: Value, op: Op) -> int:
    if _rank(new, op) != _rank(old, op):
        raise DeltaError(pointer(op.path), "a number and a text have no order")
    # Python compares integers and floats exactly, without rounding the integer first.
    less, more = (
        (new < old, new > old)
        if isinstance(new, str) and isinstance(old, str)
        else _compare_numbers(new, old)
    )
    if less == more:
        less, more = pack(new) < pack(old), pack(new) > pack(old)
    return more - less


def _compare_numbers(new: Value, old: Value) -> tuple[bool, bool]:
    assert isinstance(new, (int, float))
    assert isinstance(old, (int, float))
    return new < old, new > old
