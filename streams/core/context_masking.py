"""A context without its secrets: their fields are there, with nil for a value.

What a run's history keeps. Names stay, so that who looks at it sees what was left out.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.streams.core.context_ops import Op, parse_ops
from dalsegno.streams.core.context_values import Value, list_header, map_header, pack, trusted
from dalsegno.streams.core.context_view import View

NO_OPS: Final = b"\x90"
_NIL: Final = b"\xc0"
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def masked_context(context: View, secrets: frozenset[str]) -> bytes:
    """A packed map of all fields, sorted by name."""
    names = context.names()
    parts = [map_header(len(names))]
    for name in names:
        parts += (pack(name), _NIL if name in secrets else context.packed(name) or _NIL)
    return b"".join(parts)


def masked_bytes(context: View, size_bytes: int, secrets: frozenset[str]) -> int:
    """Packed bytes of names and values that are left of `size_bytes`."""
    for name in secrets:
        packed = context.packed(name)
        if packed is not None:
            size_bytes -= len(packed) - len(_NIL)
    return size_bytes


def masked_operations(operations: bytes, secrets: frozenset[str]) -> bytes:
    """What the operations do to a masked context. They have been applied, so they are valid."""
    kept: list[list[Value]] = []
    for op in parse_ops(operations):
        if not op.path:
            assert isinstance(op.operand, dict), "the root is set to a map"
            fields = {name: None if name in secrets else v for name, v in op.operand.items()}
            kept.append(["set", [], fields])
        elif op.path[0] not in secrets:
            kept.append(_told(op))
        elif len(op.path) == 1 and op.kind in {"set", "del"}:
            kept.append(_told(Op(op.kind, op.path, None, _NIL)))
    return pack(kept)


def _told(op: Op) -> list[Value]:
    path: Value = list(op.path)
    if op.kind == "del":
        return ["del", path]
    if op.kind == "spl":
        return ["spl", path, op.place, op.span, op.operand]
    return [op.kind, path, op.operand]


def without_secrets(context: bytes, secrets: frozenset[str]) -> tuple[bytes, tuple[str, ...]]:
    """A masked context without its masked fields, and the names of those, sorted."""
    fields = trusted(context)
    assert isinstance(fields, dict), "a context is a map"
    omitted = tuple(sorted(secrets & fields.keys()))
    if not omitted:
        return context, ()
    return pack({name: value for name, value in fields.items() if name not in secrets}), omitted


def joined(operations: list[bytes]) -> bytes:
    """Several arrays of operations as one, in their order."""
    counted = [split(each) for each in operations]
    return list_header(sum(map(len, counted))) + b"".join(b"".join(each) for each in counted)


def first_of(operations: bytes, count: int) -> bytes:
    """The first so many of them. Raises `msgspec.MsgspecError`."""
    return list_header(count) + b"".join(split(operations)[:count])


def split(operations: bytes) -> list[bytes]:
    """Each of the operations, packed. Raises `msgspec.MsgspecError`."""
    return [bytes(each) for each in _raws(operations)]
