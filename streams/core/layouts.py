"""Layouts of a run's parts: what digests of archived runs are over.

A digest names its layout, and covers the parts as that layout writes them, whatever release of the
code holds the run, and whether it holds it as bytes or not. So code with more fields finds the
digest that code without them found, and lets the same runs go.

A layout never changes. Who adds a field to one of its structs adds it at the end, with a default;
adds a layout with the new counts here; and gives it the rules that are the first to set the field.
Under the rules before, the field keeps its default, and the layout before is what is written: its
digests are found by engines of the release before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

import msgspec

from dalsegno.streams.core.capturing import Held, parts_of
from dalsegno.streams.core.cold import pack_parts
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.runstate import Effect, Run
from dalsegno.streams.core.state_codec import (
    KIND_RUN,
    PREFIX_BYTES,
    StateCorrupt,
    read_head,
    read_prefix,
    run_of,
)
from dalsegno.streams.core.warm import PackedRun


class Layout(NamedTuple):
    """`rules`: the first under which it is written. `fields`: how many of each struct it has."""

    rules: int
    fields: Mapping[str, int]


LAYOUTS: Final[dict[int, Layout]] = {
    1: Layout(
        1,
        {
            "Approval": 3,
            "Ask": 16,
            "Damage": 7,
            "Decided": 7,
            "Effect": 4,
            "Flight": 11,
            "Handled": 5,
            "JournalEntry": 6,
            "Outside": 3,
            "Past": 10,
            "People": 5,
            "Repair": 5,
            "RunHead": 42,
            "Saga": 3,
            "Shown": 3,
            "StepRow": 15,
            "Undoes": 2,
        },
    )
}

_encode: Final = msgspec.msgpack.Encoder().encode
_PAGES: Final[dict[bytes, msgspec.msgpack.Decoder[object]]] = {
    b"s": msgspec.msgpack.Decoder(list[StepRow | None]),
    b"j": msgspec.msgpack.Decoder(list[Effect]),
}
Parts = Iterable[tuple[bytes, bytes]]


class NotInLayout(Exception):  # noqa: N818 - what it is
    """A run has something that a layout has no place for: in that layout it cannot be archived."""


def layout_under(rules: int) -> int:
    """The layout that is written under these rules."""
    return max(number for number, layout in LAYOUTS.items() if layout.rules <= rules)


def packed_run(number: int, run_id: str, held: Held | PackedRun) -> bytes:
    """A run's parts as a layout has them. Raises `NotInLayout`, `StateCorrupt`."""
    parts = parts_of(run_id, held)
    if isinstance(held, Run) and number == max(LAYOUTS):
        return pack_parts(parts)
    return packed_as(number, parts)


def packed_as(number: int, parts: Parts) -> bytes:
    """These parts, of whatever layout, as another has them. Raises as `packed_run`."""
    return pack_parts((key, _part(number, key, value)) for key, value in parts)


def parts_as(number: int, parts: Parts) -> list[tuple[bytes, bytes]]:
    """The same, not packed."""
    return [(key, _part(number, key, value)) for key, value in parts]


def _part(number: int, key: bytes, value: bytes) -> bytes:
    """One part. What is no struct of ours, a context or a save, has no layout."""
    if key[:1] == b"r":
        if read_prefix(value).kind != KIND_RUN:
            return value
        head = read_head(run_of(key)[0], value)
        return value[:PREFIX_BYTES] + _encode(_as(number, head))
    decoder = _PAGES.get(key[:1])
    if decoder is None:
        return value
    try:
        return _encode(_as(number, decoder.decode(value)))
    except msgspec.MsgspecError as error:
        raise StateCorrupt(f"run {run_of(key)[0]!a}: {error}") from error


def _as(number: int, value: object) -> object:
    return value if number == max(LAYOUTS) else _cut(value, LAYOUTS[number].fields)


def _cut(value: object, fields: Mapping[str, int]) -> object:
    if isinstance(value, msgspec.Struct):
        return _cut_struct(value, fields)
    if isinstance(value, list | tuple):
        return [_cut(each, fields) for each in value]
    return value


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _cut_struct(value: msgspec.Struct, fields: Mapping[str, int]) -> object:
    kind = type(value)
    name, names = kind.__name__, kind.__struct_fields__
    if name not in fields:
        raise NotInLayout(f"there is no {name} in this layout")
    for each in _fields_of(kind)[fields[name] :]:
        factory = each.default_factory
        default = each.default if factory is msgspec.NODEFAULT else factory()
        if getattr(value, each.name) != default:
            raise NotInLayout(f"this layout has no place for {name}.{each.name}")
    found = {each: _cut(getattr(value, each), fields) for each in names[: fields[name]]}
    return list(found.values()) if kind.__struct_config__.array_like else found
