"""Whether data written by one Avro schema can be read by another: Avro's resolution rules.

Source: Avro 1.12 specification, "Schema Resolution", with names compared without their namespace as
Java's `SchemaCompatibility` does. `conflicts` compares two schemas; the contract as a whole is
checked by `dalsegno.schemas.check`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dalsegno.schemas.avro_types import (
    Array,
    AvroType,
    Enumeration,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)


class ConflictType(StrEnum):
    """Which rule of resolution is broken."""

    TYPE_MISMATCH = "type_mismatch"
    NAME_MISMATCH = "name_mismatch"
    FIXED_SIZE_MISMATCH = "fixed_size_mismatch"
    MISSING_ENUM_SYMBOLS = "missing_enum_symbols"
    MISSING_UNION_BRANCH = "missing_union_branch"
    READER_FIELD_MISSING_DEFAULT_VALUE = "reader_field_missing_default_value"


@dataclass(frozen=True, slots=True)
class Conflict:
    """One thing that the reader cannot resolve. `location` is a path into the reader's schema."""

    type: ConflictType
    location: str
    detail: str


WIDENS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What a written primitive may be read as, besides itself."""


def conflicts(reader: AvroType, writer: AvroType) -> list[Conflict]:
    """Why `reader` cannot read what `writer` wrote; empty when it always can."""
    return _Comparison().compare(reader, writer, "")


class _Comparison:
    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def compare(self, reader: AvroType, writer: AvroType, at: str) -> list[Conflict]:
        if isinstance(writer, Union):
            return self._written_union(reader, writer, at)
        if isinstance(reader, Union):
            if any(not self.compare(branch, writer, at) for branch in reader.branches):
                return []
            detail = f"no branch of the reader's union takes {_name(writer)}"
            return [Conflict(ConflictType.MISSING_UNION_BRANCH, at or "/", detail)]
        if isinstance(reader, Primitive) and isinstance(writer, Primitive):
            if reader.name == writer.name or reader.name in WIDENS.get(writer.name, ()):
                return []
        elif isinstance(reader, Array) and isinstance(writer, Array):
            return self.compare(reader.items, writer.items, f"{at}/items")
        elif isinstance(reader, Map) and isinstance(writer, Map):
            return self.compare(reader.values, writer.values, f"{at}/values")
        elif isinstance(reader, Fixed) and isinstance(writer, Fixed):
            return _fixed(reader, writer, at)
        elif isinstance(reader, Enumeration) and isinstance(writer, Enumeration):
            return _enumeration(reader, writer, at)
        elif isinstance(reader, Record) and isinstance(writer, Record):
            return self._record(reader, writer, at)
        detail = f"the reader's {_name(reader)} does not take {_name(writer)}"
        return [Conflict(ConflictType.TYPE_MISMATCH, at or "/", detail)]

    def _written_union(self, reader: AvroType, writer: Union, at: str) -> list[Conflict]:
        found = []
        for i, branch in enumerate(writer.branches):
            inner = self.compare(reader, branch, at)
            if inner and isinstance(reader, Union):
                detail = f"no branch of the reader's union takes {_name(branch)}"
                inner = [Conflict(ConflictType.MISSING_UNION_BRANCH, f"{at}/{i}", detail)]
            found += inner
        return found

    def _record(self, reader: Record, writer: Record, at: str) -> list[Conflict]:
        found = _names(reader, writer, at)
        pair = (id(reader), id(writer))
        if pair in self._seen:
            return found
        self._seen.add(pair)
        written = {field.name: field for field in writer.fields}
        for i, field in enumerate(reader.fields):
            source = _source(field, written)
            where = f"{at}/fields/{i}"
            if source is not None:
                found += self.compare(field.type, source.type, f"{where}/type")
            elif not field.has_default:
                detail = f"field {field.name!r} is not written and has no default"
                missing = ConflictType.READER_FIELD_MISSING_DEFAULT_VALUE
                found.append(Conflict(missing, where, detail))
        self._seen.discard(pair)
        return found


def _source(field: Field, written: dict[str, Field]) -> Field | None:
    names = (field.name, *field.aliases)
    return next((written[name] for name in names if name in written), None)


def _names(
    reader: Record | Enumeration | Fixed, writer: Record | Enumeration | Fixed, at: str
) -> list[Conflict]:
    short = writer.name.rpartition(".")[2]
    known = {name.rpartition(".")[2] for name in (reader.name, *reader.aliases)}
    if short in known:
        return []
    detail = f"{reader.name!r} does not read {writer.name!r}"
    return [Conflict(ConflictType.NAME_MISMATCH, f"{at}/name", detail)]


def _fixed(reader: Fixed, writer: Fixed, at: str) -> list[Conflict]:
    found = _names(reader, writer, at)
    if reader.size != writer.size:
        detail = f"{writer.size} bytes are written, {reader.size} are read"
        found.append(Conflict(ConflictType.FIXED_SIZE_MISMATCH, f"{at}/size", detail))
    return found


def _enumeration(reader: Enumeration, writer: Enumeration, at: str) -> list[Conflict]:
    found = _names(reader, writer, at)
    unknown = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if unknown and reader.default is None:
        detail = f"the reader lacks {', '.join(unknown)} and has no default"
        found.append(Conflict(ConflictType.MISSING_ENUM_SYMBOLS, f"{at}/symbols", detail))
    return found


def _name(schema: AvroType) -> str:
    if isinstance(schema, Array | Map | Union):
        return type(schema).__name__.lower()
    return schema.name
