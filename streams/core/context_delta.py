"""Operations that lead from one value to another, for producers that cannot say what they did.

Equality is of packed bytes. Lists are compared by common prefix and suffix, then by patience
anchors: items that stand once on either side, in their longest common order. They are changed back
to front, so that earlier indices stay right. Values are packed once per level of nesting.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TypeAlias

from dalsegno.streams.core.context_errors import DeltaError
from dalsegno.streams.core.context_values import Value, pack, unpack

_Path: TypeAlias = list[str | int]
_Op: TypeAlias = list[Value]
_Gap: TypeAlias = tuple[int, int, int, int]


def ops_between(before: bytes, after: bytes) -> bytes:
    """Packed operations that turn the packed context `before` into `after`, field by field.

    Both are MessagePack maps from field name to value; the order of fields does not count, the
    order of keys inside them does. Raises `DeltaError` for anything else.
    """
    old, new = unpack(before), unpack(after)
    if not isinstance(old, dict) or not isinstance(new, dict):
        raise DeltaError("", "a context is a map of fields")
    ops: list[_Op] = [["del", [name]] for name in old if name not in new]
    for name, value in new.items():
        if name not in old:
            ops.append(["set", [name], value])
        else:
            _differ(old[name], value, [name], ops)
    return pack(ops)


def _differ(old: Value, new: Value, path: _Path, ops: list[_Op]) -> None:
    if _same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict) and _keeps_order(old, new):
        ops += [["del", [*path, key]] for key in old if key not in new]
        for key, value in new.items():
            if key in old:
                _differ(old[key], value, [*path, key], ops)
            else:
                ops.append(["set", [*path, key], value])
    elif isinstance(old, list) and isinstance(new, list):
        _differ_lists(old, new, path, ops)
    elif isinstance(old, str) and isinstance(new, str) and old and new.startswith(old):
        ops.append(["cat", [*path], new[len(old) :]])
    else:
        ops.append(["set", [*path], new])


def _same(old: Value, new: Value) -> bool:
    if type(old) is not type(new):
        return False
    if isinstance(old, (str, int)):
        return old == new
    return pack(old) == pack(new)


def _keeps_order(old: dict[str, Value], new: dict[str, Value]) -> bool:
    kept = [key for key in old if key in new]
    return list(new)[: len(kept)] == kept


def _differ_lists(old: list[Value], new: list[Value], path: _Path, ops: list[_Op]) -> None:
    left, right = [pack(item) for item in old], [pack(item) for item in new]
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    end = 0
    while end < min(len(left), len(right)) - start and left[-1 - end] == right[-1 - end]:
        end += 1
    gaps = _gaps(left[start : len(left) - end], right[start : len(right) - end])
    for a, b, c, d in reversed(gaps):
        first, last = a + start, b + start
        if b - a == d - c:
            for i in range(b - a):
                _differ(old[first + i], new[c + start + i], [*path, first + i], ops)
        elif first == last == len(old):
            ops.append(["app", [*path], new[c + start : d + start]])
        else:
            ops.append(["spl", [*path], first, last - first, new[c + start : d + start]])


def _gaps(left: list[bytes], right: list[bytes]) -> list[_Gap]:
    """Stretches (a, b, c, d): `left[a:b]` became `right[c:d]`; between them both are equal."""
    gaps: list[_Gap] = []
    at_left = at_right = 0
    for anchor_left, anchor_right in [*_anchors(left, right), (len(left), len(right))]:
        a, b, c, d = at_left, anchor_left, at_right, anchor_right
        while a < b and c < d and left[a] == right[c]:
            a, c = a + 1, c + 1
        while b > a and d > c and left[b - 1] == right[d - 1]:
            b, d = b - 1, d - 1
        if b > a or d > c:
            gaps.append((a, b, c, d))
        at_left, at_right = anchor_left + 1, anchor_right + 1
    return gaps


def _anchors(left: list[bytes], right: list[bytes]) -> list[tuple[int, int]]:
    """Places of items that stand once on either side: their longest run in common order."""
    count_left, count_right = Counter(left), Counter(right)
    place = {item: i for i, item in enumerate(left) if count_left[item] == 1}
    pairs = [
        (place[item], i) for i, item in enumerate(right) if item in place and count_right[item] == 1
    ]
    tails: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    for i, (at, _) in enumerate(pairs):
        k = bisect_left(tails, at)
        tails[k : k + 1] = [at]
        ends[k : k + 1] = [i]
        back.append(ends[k - 1] if k else -1)
    chain: list[tuple[int, int]] = []
    i = ends[-1] if ends else -1
    while i >= 0:
        chain.append(pairs[i])
        i = back[i]
    chain.reverse()
    return chain
