"""Canonical bytes of a plan, or of steps that extend one: MessagePack arrays without field names.

Layout, format 1: `[1, [row per step], secrets, [[field, rule], ...], gates, on_failure,
stop_clocks_for_people, [[name, type, text], ...]]`, the fields left out where none is described. A
row holds the values of `StepPlan` in the order of its fields, `retry`
again as a row. Fields that a later format adds come last in their row, so that older code can read
it; they are left out at their default, so that a plan without them keeps its digest. Steps behind a
plan: `[2, digest of the plan before, [row per step]]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from dalsegno.schemas.plan import (
    ContextField,
    FieldType,
    Merge,
    MergeRule,
    OnFailure,
    Plan,
    RetryPolicy,
    StepPlan,
)

_FORMAT: Final = 1
_FORMAT_MORE: Final = 2
_DIGEST_BYTES: Final = 32
# An extension begins so: an array of 3, its format, the header of 32 bytes.
_MORE_HEAD: Final = b"\x93\x02\xc4\x20"
_STEP_FIELDS: Final = StepPlan.__struct_fields__
_RETRY_FIELDS: Final = RetryPolicy.__struct_fields__
_RETRY_AT: Final = _STEP_FIELDS.index("retry")

_encode = msgspec.msgpack.Encoder().encode

_Row = tuple[object, ...]


class _Packed(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    form: int
    steps: tuple[_Row, ...]
    secrets: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    gates: tuple[str, ...]
    on_failure: str
    stop_clocks: bool
    fields: tuple[tuple[str, str, str], ...] = ()


_decoder = msgspec.msgpack.Decoder(_Packed)
_more_decoder = msgspec.msgpack.Decoder(tuple[int, bytes, tuple[_Row, ...]])


def pack_plan(plan: Plan) -> bytes:
    """Equal plans give equal bytes, on any machine."""
    row: list[object] = [
        _FORMAT,
        _pack_steps(plan.steps),
        plan.secrets,
        [(merge.field, merge.rule) for merge in plan.merges],
        plan.gates,
        plan.on_failure,
        plan.stop_clocks_for_people,
    ]
    if plan.fields:
        row.append([(field.name, field.type, field.text) for field in plan.fields])
    return _encode(row)


def pack_more(before: bytes, steps: Sequence[StepPlan]) -> bytes:
    """Steps that extend the plan of the digest `before`."""
    return _encode((_FORMAT_MORE, before, _pack_steps(steps)))


def _pack_steps(steps: Sequence[StepPlan]) -> list[_Row]:
    rows: list[_Row] = []
    for step in steps:
        row: list[object] = [getattr(step, name) for name in _STEP_FIELDS]
        row[_RETRY_AT] = msgspec.structs.astuple(step.retry)
        if not step.pivot:
            row.pop()
        rows.append(tuple(row))
    return rows


def before_of(data: bytes) -> bytes:
    """The digest of the plan that packed steps extend; empty for a plan that extends none."""
    head = len(_MORE_HEAD)
    return data[head : head + _DIGEST_BYTES] if data[:head] == _MORE_HEAD else b""


def unpack_more(data: bytes) -> tuple[StepPlan, ...]:
    """The steps that `pack_more` was given. Raises `msgspec.DecodeError`."""
    return tuple(_unpack_step(row) for row in _more_decoder.decode(data)[2])


def unpack_plan(data: bytes) -> Plan:
    """Raises `msgspec.DecodeError` (also `ValidationError`) when `data` is no packed plan."""
    packed = _decoder.decode(data)
    if packed.form != _FORMAT:
        raise msgspec.ValidationError(
            f"a packed plan of format {packed.form}; this code reads {_FORMAT}"
        )
    return Plan(
        steps=tuple(_unpack_step(row) for row in packed.steps),
        secrets=packed.secrets,
        merges=tuple(Merge(field=field, rule=MergeRule(rule)) for field, rule in packed.merges),
        gates=packed.gates,
        on_failure=OnFailure(packed.on_failure),
        stop_clocks_for_people=packed.stop_clocks,
        fields=tuple(
            ContextField(name=name, type=FieldType(kind), text=text)
            for name, kind, text in packed.fields
        ),
    )


def _unpack_step(row: _Row) -> StepPlan:
    values = dict(zip(_STEP_FIELDS, row, strict=False))
    retry = msgspec.convert(row[_RETRY_AT], _Row)
    values["retry"] = dict(zip(_RETRY_FIELDS, retry, strict=False))
    return msgspec.convert(values, StepPlan)
