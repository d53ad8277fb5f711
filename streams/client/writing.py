"""What is written to a context: the operations of a report, checked before they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from dalsegno.schemas import values
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.values import Value
from dalsegno.streams.client.schema import ContextSchema


def set_operations(fields: Mapping[str, object], schema: ContextSchema | None) -> bytes:
    """Packed operations that set each field as a whole.

    Raises `ValueRefusedError` for a value that no context holds, `FieldRefused` for one that the
    schema does not allow; both with the path from the field on.
    """
    ops: list[Value] = [["set", [name], cast(Value, value)] for name, value in fields.items()]
    try:
        packed = values.pack(ops)
    except ValueRefusedError:
        # Its path leads through the operations; that of the same value among the fields does not.
        values.pack(cast(Value, dict(fields)))
        raise
    check_values(fields, schema)
    return packed


def check_values(fields: Mapping[str, object], schema: ContextSchema | None) -> None:
    """Raises `FieldRefused`."""
    if schema is not None:
        for name, value in fields.items():
            schema.check_value(name, value)
