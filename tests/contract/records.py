"""Records of every kind for tests: hypothesis strategies and one fixed sample each."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st

from dalsegno.schemas import kinds, wire
from dalsegno.schemas.avro_types import Array, AvroType, Enumeration, Primitive, Record, Union
from dalsegno.schemas.compile_encoder import optional_branches
from dalsegno.schemas.registry import registry

CLASSES = kinds.classes()


@cache
def of_kind(kind: str) -> st.SearchStrategy[Any]:
    """Any valid record of a kind, by its newest schema."""
    return _record(registry().newest(kind).schema)


def of_any_kind() -> st.SearchStrategy[Any]:
    """Any valid record."""
    return st.sampled_from(list(kinds.KINDS)).flatmap(of_kind)


def _record(schema: Record) -> st.SearchStrategy[Any]:
    fields = {field.name: _value(field.type) for field in schema.fields}
    return st.builds(CLASSES[schema.short_name], **fields)


def _value(schema: AvroType) -> st.SearchStrategy[Any]:
    if isinstance(schema, Primitive):
        return {
            "string": st.text(max_size=80),
            "bytes": st.binary(max_size=80),
            "boolean": st.booleans(),
            "int": st.integers(wire.INT_MIN, wire.INT_MAX),
            "long": st.integers(wire.LONG_MIN, wire.LONG_MAX)
            | st.integers(1_700_000_000_000, 1_900_000_000_000),
        }[schema.name]
    if isinstance(schema, Enumeration):
        return st.sampled_from(list(CLASSES[schema.name.rpartition(".")[2]]))
    if isinstance(schema, Array):
        return st.lists(_value(schema.items), max_size=3).map(tuple)
    if isinstance(schema, Union):
        return st.none() | _value(optional_branches(schema)[2])
    assert isinstance(schema, Record)
    return _record(schema)


def sample(kind: str) -> Any:
    """One fixed record with no field at its default."""
    return _sample(registry().newest(kind).schema, kind)


def _sample(schema: AvroType, hint: str) -> Any:
    if isinstance(schema, Primitive):
        number = sum(hint.encode())
        return {
            "string": f"{hint} é",
            "bytes": hint.encode() + b"\x00\xff",
            "boolean": True,
            "int": -number if number % 3 == 0 else number,
            "long": 1_764_460_000_000 + number if hint.endswith("_ms") else number << 33,
        }[schema.name]
    if isinstance(schema, Enumeration):
        return list(CLASSES[schema.name.rpartition(".")[2]])[-1]
    if isinstance(schema, Array):
        return (_sample(schema.items, hint), _sample(schema.items, f"{hint} 2"))
    if isinstance(schema, Union):
        return _sample(optional_branches(schema)[2], hint)
    assert isinstance(schema, Record)
    fields = {field.name: _sample(field.type, field.name) for field in schema.fields}
    return CLASSES[schema.short_name](**fields)


def plain(record: object) -> Any:
    """A record as an Avro library without our classes shows it: dictionaries, lists, text."""
    if isinstance(record, msgspec.Struct):
        return {name: plain(getattr(record, name)) for name in record.__struct_fields__}
    if isinstance(record, tuple):
        return [plain(each) for each in record]
    return str(record.value) if hasattr(record, "value") else record


def as_written(record: Any, schema: Record) -> Any:
    """The plain form of a record, as far as an older schema has its fields."""
    return {field.name: _as_written(record[field.name], field.type) for field in schema.fields}


def _as_written(value: Any, schema: AvroType) -> Any:
    if isinstance(schema, Record):
        return as_written(value, schema)
    if isinstance(schema, Array):
        return [_as_written(each, schema.items) for each in value]
    if isinstance(schema, Union):
        return None if value is None else _as_written(value, optional_branches(schema)[2])
    return value
