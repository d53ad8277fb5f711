"""Operations on a context: what they look like, and what each does inside one field.

An array per operation: `["set", path, value]`, `["del", path]`, `["app", path, items]` (append to a
list), `["cat", path, text]` (append to a text), `["spl", path, i, n, items]` (put `items` in the
place of `n` items from index `i`). A path is an array: a text is a map key, an integer from 0 a
list index. The empty path is the root. `set` adds or replaces a map key and replaces an existing
list index; `del` takes away a map key; parents must exist.

Each operation writes how to undo it before it acts. Only `del` cannot be undone in place, because a
map remembers the order of its keys: whoever undoes it decodes the field again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from dalsegno.streams.core.context_errors import DeltaError, pointer
from dalsegno.streams.core.context_values import (
    DEPTH_MAX,
    Path,
    Value,
    check,
    header_bytes,
    list_header,
    pack,
    text_bytes,
    unpack_raw,
)

_LENGTHS: Final = {"set": 3, "del": 2, "app": 3, "cat": 3, "spl": 5}
_PLACE_MAX: Final = 2**31 - 1
_PACKED_KINDS: Final = {kind: pack(kind) for kind in _LENGTHS}


class Op(msgspec.Struct, frozen=True, gc=False):
    """One operation, well-formed. `operand` is the value, the items or the text.

    `packed` are the operand's bytes; a splice replaces `span` items from `place`.
    """

    kind: str
    path: Path
    operand: Value
    packed: bytes
    place: int = 0
    span: int = 0

    def inside_field(self) -> bytes:
        """Packed bytes of the operation as seen from its field: without the path's first part."""
        head = list_header(_LENGTHS[self.kind]) + _PACKED_KINDS[self.kind] + pack(self.path[1:])
        if self.kind == "spl":
            head += pack(self.place) + pack(self.span)
        return head + self.packed


class Effect(NamedTuple):
    """What an operation did: by how many bytes the field grew, and whether `path` is new.

    `first` is the index of the first item that `app` added, `whole` the packed size of the text
    that `cat` made. `same`: nothing has changed.
    """

    grown: int
    added: bool = False
    first: int = 0
    whole: int = 0
    same: bool = False


def parse_ops(data: bytes) -> list[Op]:
    """The operations in a MessagePack array. Raises `DeltaError`."""
    raw = unpack_raw(data)
    if not isinstance(raw, list):
        raise DeltaError("", "the operations are no array")
    return [_parse(op) for op in raw]


def _parse(raw: object) -> Op:
    if not isinstance(raw, list) or not raw or not isinstance(raw[0], str):
        raise DeltaError("", "an operation is an array that starts with its name")
    kind = raw[0]
    if kind == "set" and len(raw) == 3:
        # What most steps report; the general way below would say the same.
        path = _parse_path(raw[1])
        operand = check(raw[2], path, DEPTH_MAX - len(path))
        return Op(kind, path, operand, pack(operand))
    length = _LENGTHS.get(kind)
    if length is None:
        raise DeltaError("", f"unknown operation {kind[:40]!a}; known: {', '.join(_LENGTHS)}")
    if len(raw) != length:
        raise DeltaError("", f"{kind} has {len(raw) - 1} arguments, it takes {length - 1}")
    path = _parse_path(raw[1])
    if kind == "del":
        if not path:
            raise DeltaError("", "the root cannot be deleted")
        return Op(kind, path, None, b"")
    operand = check(raw[-1], path, DEPTH_MAX - len(path))
    if kind == "cat":
        if not isinstance(operand, str):
            raise DeltaError(pointer(path), "cat appends a text")
    elif kind != "set" and not isinstance(operand, list):
        raise DeltaError(pointer(path), f"{kind} takes a list of items")
    packed = pack(operand)
    if kind != "spl":
        return Op(kind, path, operand, packed)
    index, count = raw[2], raw[3]
    if type(index) is not int or type(count) is not int or not _place(index, count):
        raise DeltaError(pointer(path), "spl takes an index and a count, both integers from 0")
    return Op(kind, path, operand, packed, index, count)


def _place(index: int, count: int) -> bool:
    return 0 <= index <= _PLACE_MAX and 0 <= count <= _PLACE_MAX


def _parse_path(raw: object) -> Path:
    if not isinstance(raw, list):
        raise DeltaError("", "a path is an array")
    if len(raw) == 1 and isinstance(raw[0], str):
        return (raw[0],)
    if len(raw) > DEPTH_MAX:
        raise DeltaError("", f"a path has more than {DEPTH_MAX} parts")
    path: list[str | int] = []
    for part in raw:
        if isinstance(part, str) or (type(part) is int and 0 <= part <= _PLACE_MAX):
            path.append(part)
        else:
            raise DeltaError(pointer(path), "parts of a path are texts and integers from 0")
    return tuple(path)


class Undo:
    """How to take operations back, newest first. `torn`: a `del` was among them."""

    __slots__ = ("_log", "torn")

    def __init__(self) -> None:
        self._log: list[tuple[list[Value] | dict[str, Value], Value, Value, int]] = []
        self.torn = False

    def assigned(self, holder: list[Value] | dict[str, Value], key: str | int, old: Value) -> None:
        self._log.append((holder, key, old, -1))

    def added(self, holder: dict[str, Value], key: str) -> None:
        self._log.append((holder, key, None, -2))

    def spliced(self, holder: list[Value], index: int, old: list[Value], count: int) -> None:
        """`count` items now stand where `old` stood."""
        self._log.append((holder, index, old, count))

    def run(self) -> None:
        """Puts everything back."""
        for holder, key, old, count in reversed(self._log):
            if count == -1:
                holder[key] = old  # type: ignore[index]
            elif count == -2:
                del holder[key]  # type: ignore[arg-type]
            else:
                assert isinstance(holder, list)
                assert isinstance(key, int)
                assert isinstance(old, list)
                holder[key : key + count] = old
        self._log.clear()


def apply_inside(holder: list[Value], op: Op, undo: Undo) -> Effect:
    """Applies `op` to the field whose value is `holder[0]`, in place. Raises `DeltaError`.

    The operand becomes part of the field: nobody else may keep it. Time is that of the operation,
    but for `cat`, which copies the text, and for values that are replaced, which are measured.
    """
    path: Path = (0, *op.path[1:])
    parent: Value = holder
    for at in range(len(path) - 1):
        parent = child(parent, path[at], op.path[: at + 1])
    key = path[-1]
    if op.kind == "set":
        return _set(parent, key, op, undo)
    if op.kind == "del":
        return _del(parent, key, op, undo)
    target = child(parent, key, op.path)
    if op.kind == "cat":
        if not isinstance(target, str) or not isinstance(op.operand, str):
            raise DeltaError(pointer(op.path), "cat appends to a text, and there is none")
        return _cat(parent, key, target, op.operand, undo)
    if not isinstance(target, list) or not isinstance(op.operand, list):
        raise DeltaError(pointer(op.path), f"{op.kind} changes a list, and there is none")
    if op.kind == "app":
        return _splice(target, len(target), 0, op, undo)
    if op.place + op.span > len(target):
        raise DeltaError(
            pointer(op.path),
            f"spl replaces {op.span} items from {op.place}, the list has {len(target)}",
        )
    return _splice(target, op.place, op.span, op, undo)


def child(parent: Value, key: str | int, path: Path) -> Value:
    """What stands at `key` in a map or list; `path` leads to it. Raises `DeltaError`."""
    if isinstance(parent, dict):
        if isinstance(key, str) and key in parent:
            return parent[key]
        raise DeltaError(pointer(path), "the map has no such key")
    if isinstance(parent, list):
        if isinstance(key, int) and key < len(parent):
            return parent[key]
        raise DeltaError(pointer(path), "the list has no such index")
    raise DeltaError(pointer(path), "what the path leads through is neither a map nor a list")


def _set(parent: Value, key: str | int, op: Op, undo: Undo) -> Effect:
    if isinstance(parent, dict) and isinstance(key, str) and key not in parent:
        undo.added(parent, key)
        header = header_bytes(len(parent) + 1) - header_bytes(len(parent))
        parent[key] = op.operand
        return Effect(header + text_bytes(key) + len(op.packed), added=True)
    old = child(parent, key, op.path)
    packed_old = pack(old)
    if packed_old == op.packed:
        return Effect(0, same=True)
    assert isinstance(parent, (dict, list))
    undo.assigned(parent, key, old)
    parent[key] = op.operand  # type: ignore[index]
    return Effect(len(op.packed) - len(packed_old))


def _del(parent: Value, key: str | int, op: Op, undo: Undo) -> Effect:
    if not isinstance(parent, dict):
        raise DeltaError(pointer(op.path), "del takes away a map key")
    old = child(parent, key, op.path)
    assert isinstance(key, str)
    undo.torn = True
    header = header_bytes(len(parent) - 1) - header_bytes(len(parent))
    del parent[key]
    return Effect(header - text_bytes(key) - len(pack(old)))


def _cat(parent: Value, key: str | int, old: str, text: str, undo: Undo) -> Effect:
    if not text:
        return Effect(0, same=True)
    assert isinstance(parent, (dict, list))
    undo.assigned(parent, key, old)
    new = old + text
    parent[key] = new  # type: ignore[index]
    whole = text_bytes(new)
    return Effect(whole - text_bytes(old), whole=whole)


def _splice(target: list[Value], index: int, count: int, op: Op, undo: Undo) -> Effect:
    assert isinstance(op.operand, list)
    items = op.operand
    old = target[index : index + count]
    packed_old = pack(old)
    if packed_old == op.packed:
        return Effect(0, same=True)
    undo.spliced(target, index, old, len(items))
    before = len(target)
    target[index : index + count] = items
    grown = len(op.packed) - header_bytes(len(items)) - len(packed_old) + header_bytes(count)
    return Effect(grown + header_bytes(len(target)) - header_bytes(before), first=index)
