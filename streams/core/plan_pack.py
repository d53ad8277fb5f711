"""Canonical bytes of a plan: a MessagePack array of rows, without field names.

Layout, format 1: `[1, [row per step], secrets, [[field, rule], ...], gates, on_failure,
stop_clocks_for_people]`. A row holds the values of `StepPlan` in the order of its fields, `retry`
again as a row. Fields that a later format adds come last in their row, so that older code can read
it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.plan import Merge, MergeRule, OnFailure, Plan, RetryPolicy, StepPlan

_FORMAT: Final = 1
_STEP_FIELDS: Final = StepPlan.__struct_fields__
_RETRY_FIELDS: Final = RetryPolicy.__struct_fields__
_RETRY_AT: Final = _STEP_FIELDS.index("retry")

_encode = msgspec.msgpack.Encoder().encode

_Row = tuple[object, ...]
_Packed = tuple[
    int,
    tuple[_Row, ...],
    tuple[str, ...],
    tuple[tuple[str, str], ...],
    tuple[str, ...],
    str,
    bool,
]
_decoder = msgspec.msgpack.Decoder(_Packed)


def pack_plan(plan: Plan) -> bytes:
    """Equal plans give equal bytes, on any machine."""
    rows: list[_Row] = []
    for step in plan.steps:
        row: list[object] = [getattr(step, name) for name in _STEP_FIELDS]
        row[_RETRY_AT] = msgspec.structs.astuple(step.retry)
        rows.append(tuple(row))
    return _encode(
        (
            _FORMAT,
            rows,
            plan.secrets,
            [(merge.field, merge.rule) for merge in plan.merges],
            plan.gates,
            plan.on_failure,
            plan.stop_clocks_for_people,
        )
    )


def unpack_plan(data: bytes) -> Plan:
    """Raises `msgspec.DecodeError` (also `ValidationError`) when `data` is no packed plan."""
    form, rows, secrets, merges, gates, on_failure, stop_clocks = _decoder.decode(data)
    if form != _FORMAT:
        raise msgspec.ValidationError(f"a packed plan of format {form}; this code reads {_FORMAT}")
    return Plan(
        steps=tuple(_unpack_step(row) for row in rows),
        secrets=secrets,
        merges=tuple(Merge(field=field, rule=MergeRule(rule)) for field, rule in merges),
        gates=gates,
        on_failure=OnFailure(on_failure),
        stop_clocks_for_people=stop_clocks,
    )


def _unpack_step(row: _Row) -> StepPlan:
    values = dict(zip(_STEP_FIELDS, row, strict=False))
    retry = msgspec.convert(row[_RETRY_AT], _Row)
    values["retry"] = dict(zip(_RETRY_FIELDS, retry, strict=False))
    return msgspec.convert(values, StepPlan)
