"""Forms for missing fields, made from what the plan says of them; and whether an answer fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dalsegno.schemas.blob import HEAD as BLOB_HEAD
from dalsegno.schemas.package import FormField
from dalsegno.schemas.plan import ContextField, FieldType
from dalsegno.streams.core.bounds import utf8_bytes
from dalsegno.streams.core.context_field import Field
from dalsegno.streams.core.context_view import View
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.step_table import FINAL_STEPS

# Steps that one field of a form names.
NEEDED_BY_MAX: Final = 8
_LINE_BYTES: Final = 24
_TIMES: Final = frozenset({0xC7, 0xD6, 0xD7})


def form(draft: Draft, fields: Iterable[str]) -> tuple[FormField, ...]:
    """What has to be filled in, in the order asked. Linear in the steps of the run."""
    known = {each.name: each for each in draft.plan.plan.fields}
    lines = []
    for name in fields:
        said = known.get(name) or ContextField(name=name)
        lines.append(
            FormField(
                field=name,
                type=said.type,
                text=said.text,
                secret=name in draft.plan.secrets,
                needed_by=_readers(draft, name),
            )
        )
    return tuple(lines)


def form_bytes(lines: Iterable[FormField]) -> int:
    """About what they take in a record."""
    return sum(
        sum(map(utf8_bytes, (line.field, line.text, *line.needed_by))) + _LINE_BYTES
        for line in lines
    )


def _readers(draft: Draft, field: str) -> tuple[str, ...]:
    found: list[str] = []
    for place, old in enumerate(draft.run.rows):
        if len(found) == NEEDED_BY_MAX:
            break
        step = draft.steps[place]
        if field in step.reads and draft.rows.get(place, old).state not in FINAL_STEPS:
            found.append(step.name)
    return tuple(found)


def misfit(draft: Draft, changed: Iterable[str], view: View) -> str:
    """Why what came from outside is not what the plan says of its field; empty when it is."""
    known = {each.name: each.type for each in draft.plan.plan.fields}
    for name in changed:
        expected = known.get(name, FieldType.ANY)
        state = view.get(name)
        if expected is FieldType.ANY or state is None:
            continue
        found = type_of(state.pack() if isinstance(state, Field) else state)
        wide = expected is FieldType.NUMBER and found == FieldType.INTEGER
        if found not in (expected, FieldType.ANY) and not wide:
            return f"field {name!a} is a {expected}, what came is a {found}"
    return ""


def type_of(packed: bytes) -> str:
    """The type of a packed value, `null`, or `any` for one that is kept as a blob.

    Source: MessagePack specification, "Formats".
    """
    lead = packed[0]
    if packed.startswith(BLOB_HEAD):
        return FieldType.ANY
    for first, last, kind in _LEADS:
        if first <= lead <= last:
            return kind
    assert lead in _TIMES, f"no value of a context begins so: {lead:#x}"
    return FieldType.TIME


_LEADS: Final = (
    (0x00, 0x7F, FieldType.INTEGER),
    (0x80, 0x8F, FieldType.MAP),
    (0x90, 0x9F, FieldType.LIST),
    (0xA0, 0xBF, FieldType.TEXT),
    (0xC0, 0xC0, "null"),
    (0xC2, 0xC3, FieldType.BOOLEAN),
    (0xC4, 0xC6, FieldType.BYTES),
    (0xCA, 0xCB, FieldType.NUMBER),
    (0xCC, 0xD3, FieldType.INTEGER),
    (0xD9, 0xDB, FieldType.TEXT),
    (0xDC, 0xDD, FieldType.LIST),
    (0xDE, 0xDF, FieldType.MAP),
    (0xE0, 0xFF, FieldType.INTEGER),
)
