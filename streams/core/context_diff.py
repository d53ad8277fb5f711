"""What a change did to the context, for transitions.

A MessagePack map: `{"added": {path: how}, "changed": {path: how}, "removed": [path]}`, paths as
JSON Pointers. `how` is an array: `["set", value]`, `["cat", text]` (appended to a text), `["spl",
index, count, items]` (a list's items replaced), `["secret"]` (a field whose values are masked: the
path ends at the field), or `["cut", bytes]` (the value is longer than a diff shows). Only the
changes that fit are listed; the key `more`, if there, counts the others.

Its cost follows from the operations: what a list or text held before is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from dalsegno.streams.core.context_errors import pointer
from dalsegno.streams.core.context_values import Path, list_header, map_header, pack

VALUE_BYTES_MAX: Final = 1_024
DIFF_BYTES_MAX: Final = 32_768

_SECRET: Final = pack(["secret"])
_SET: Final = pack("set")
_ADDED: Final = pack("added")
_CHANGED: Final = pack("changed")
_REMOVED: Final = pack("removed")
_MORE: Final = pack("more")
# Around the only entry of a diff: by far the most frequent shape.
_ONE_ADDED: Final = map_header(3) + _ADDED + map_header(1)
_ONE_ADDED_END: Final = _CHANGED + map_header(0) + _REMOVED + list_header(0)
_ONE_CHANGED: Final = map_header(3) + _ADDED + map_header(0) + _CHANGED + map_header(1)
_ONE_CHANGED_END: Final = _REMOVED + list_header(0)


What: TypeAlias = Literal["added", "changed", "removed"]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One change: at `path` something was `what`; `how` is its packed array (see the module)."""

    what: What
    path: Path
    how: bytes


def shown(form: bytes, arguments: int, packed: bytes) -> bytes:
    """Packed `[form, ...]` from a packed form and its packed arguments, or `["cut", bytes]`."""
    if len(packed) > VALUE_BYTES_MAX:
        return pack(["cut", len(packed)])
    return list_header(1 + arguments) + form + packed


def set_to(packed: bytes) -> bytes:
    """Packed `["set", value]`, or `["cut", bytes]`."""
    if len(packed) > VALUE_BYTES_MAX:
        return pack(["cut", len(packed)])
    return b"\x92" + _SET + packed


def pack_diff(
    entries: Sequence[Entry], secrets: frozenset[str], final: Callable[[Path], bytes | None]
) -> bytes:
    """The diff of these changes, in their order. Empty bytes when there is none.

    Two changes of one path become one; what it is in the end is asked of `final`, which gives the
    packed value at a path, or None if nothing is there now.
    """
    if len(entries) == 1 and entries[0].path[0] not in secrets:
        [entry] = entries
        what = entry.what
        if what != "removed":
            item = pack(pointer(entry.path)) + entry.how
            if len(item) <= DIFF_BYTES_MAX:
                return (
                    _ONE_ADDED + item + _ONE_ADDED_END
                    if what == "added"
                    else (_ONE_CHANGED + item + _ONE_CHANGED_END)
                )
    merged: dict[str, tuple[What | None, bytes, Path, bool]] = {}
    for entry in entries:
        done, full, told = entry.what, entry.path, entry.how
        secret = bool(full) and full[0] in secrets
        path, how = (full[:1], _SECRET) if secret else (full, told)
        # Whatever happens inside a secret field changes the field.
        what = "changed" if secret and len(full) > 1 else done
        key = pointer(path)
        before = merged.get(key)
        if before is None:
            merged[key] = (what, how, path, False)
        else:
            merged[key] = (_both(before[0], what), how, path, not secret)
    lists: dict[str, list[bytes]] = {"added": [], "changed": [], "removed": []}
    room = DIFF_BYTES_MAX
    more = 0
    for key, (net, how, path, again) in merged.items():
        if net is None:
            continue
        item = pack(key)
        if net != "removed":
            now = final(path) if again else None
            item += set_to(now) if now is not None else how
        room -= len(item)
        if room < 0:
            more += 1
        else:
            lists[net].append(item)
    return _assemble(lists["added"], lists["changed"], lists["removed"], more)


def _both(first: What | None, then: What) -> What | None:
    if first == "added":
        return None if then == "removed" else "added"
    if first is None:
        return then
    return "changed" if first == "removed" and then == "added" else then


def _assemble(added: list[bytes], changed: list[bytes], removed: list[bytes], more: int) -> bytes:
    if not (added or changed or removed or more):
        return b""
    parts = [
        map_header(4 if more else 3),
        _ADDED,
        map_header(len(added)),
        *added,
        _CHANGED,
        map_header(len(changed)),
        *changed,
        _REMOVED,
        list_header(len(removed)),
        *removed,
    ]
    if more:
        parts += [_MORE, pack(more)]
    return b"".join(parts)
