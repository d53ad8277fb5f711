"""Says where a record or its bytes are wrong, after the compiled codec has refused them.

Slow on purpose: it walks the schema beside the value and keeps the path. The bounds are those of
the compiled code, so it too allocates nothing for a count or length that the bytes cannot hold.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from dalsegno.schemas import wire
from dalsegno.schemas.avro_types import Array, AvroType, Enumeration, Primitive, Record, Union
from dalsegno.schemas.errors import DecodeError, EncodeError, Fault, SchemaFileError

_PYTHON = {"string": str, "bytes": bytes, "int": int, "long": int, "boolean": bool}
_RANGES = {"int": (wire.INT_MIN, wire.INT_MAX), "long": (wire.LONG_MIN, wire.LONG_MAX)}


class _Found(wire.Refused):
    def __init__(self, path: str, detail: str, at: int = 0) -> None:
        self.path = path
        self.detail = detail
        self.at = at


def encode_error(schema: Record, record: msgspec.Struct) -> EncodeError:
    """Why the record cannot be encoded by the schema."""
    try:
        for field in schema.fields:
            _check(field.type, getattr(record, field.name), field.name)
    except _Found as found:
        return EncodeError(schema.short_name, found.path, found.detail)
    return EncodeError(schema.short_name, "", "cannot be encoded")


def _check(schema: AvroType, value: object, path: str) -> None:
    if isinstance(schema, Primitive):
        _check_primitive(schema.name, value, path)
    elif isinstance(schema, Enumeration):
        name = schema.name.rpartition(".")[2]
        if not isinstance(value, StrEnum) or type(value).__name__ != name:
            raise _Found(path, f"expected a {name}, not {_show(value)}")
        if value.value not in schema.symbols:
            raise _Found(path, f"the schema has no symbol {value.value!r}")
    elif isinstance(schema, Union):
        if value is not None:
            _check(next(b for b in schema.branches if b != Primitive("null")), value, path)
    elif isinstance(schema, Array):
        if type(value) is not tuple:
            raise _Found(path, f"expected a tuple, not {_show(value)}")
        if len(value) > wire.ITEMS_MAX:
            raise _Found(path, f"{len(value)} items, over {wire.ITEMS_MAX}")
        for i, each in enumerate(value):
            _check(schema.items, each, f"{path}[{i}]")
    elif isinstance(schema, Record):
        if type(value).__name__ != schema.short_name:
            raise _Found(path, f"expected a {schema.short_name}, not {_show(value)}")
        for field in schema.fields:
            _check(field.type, getattr(value, field.name), f"{path}.{field.name}")


def _check_primitive(name: str, value: object, path: str) -> None:
    expected = _PYTHON[name]
    if type(value) is not expected:
        raise _Found(path, f"expected {expected.__name__}, not {_show(value)}")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _Found(path, f"a lone surrogate at character {error.start}") from error
    elif name in _RANGES:
        low, high = _RANGES[name]
        if isinstance(value, int) and not low <= value <= high:
            raise _Found(path, f"{value} is outside the range of Avro {name}")


def _show(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def skip(schema: AvroType, data: bytes, at: int) -> int:
    """The position after a value of the schema, as strict as reading it. Raises `Refused`."""
    return _Walk(data).value(schema, at, "")


def decode_error(schema: Record, reader: Record, data: bytes, at: int) -> DecodeError:
    """Why the bytes from `at` on are not one record of the schema; `reader` is today's."""
    walk = _Walk(data)
    try:
        for field in schema.fields:
            at = walk.value(field.type, at, field.name)
    except _Found as found:
        return DecodeError(
            Fault.BAD_BODY, found.detail, kind=schema.short_name, path=found.path, offset=found.at
        )
    if at != len(data):
        detail = f"{len(data) - at} bytes after the record's end"
        return DecodeError(Fault.TRAILING_BYTES, detail, kind=schema.short_name, offset=at)
    detail = f"does not fit today's schema of {reader.short_name}"
    return DecodeError(Fault.BAD_BODY, detail, kind=schema.short_name, offset=at)


class _Walk:
    """Skips values by schema; each method returns the position after what it read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def value(self, schema: AvroType, at: int, path: str) -> int:
        if isinstance(schema, Primitive):
            return self._primitive(schema.name, at, path)
        if isinstance(schema, Enumeration):
            return self._choice(len(schema.symbols), at, path, "symbol")[1]
        if isinstance(schema, Union):
            branch, at = self._choice(len(schema.branches), at, path, "union branch")
            return self.value(schema.branches[branch], at, path)
        if isinstance(schema, Array):
            return self._blocks(schema, at, path)
        if isinstance(schema, Record):
            for field in schema.fields:
                at = self.value(field.type, at, f"{path}.{field.name}")
            return at
        raise SchemaFileError(f"the codec does not read {schema}")

    def _primitive(self, name: str, at: int, path: str) -> int:
        if name == "null":
            return at
        if name in _RANGES:
            n, end = self._long(at, path)
            low, high = _RANGES[name]
            if not low <= n <= high:
                raise _Found(path, f"{n} is outside the range of Avro {name}", at)
            return end
        if name in ("string", "bytes"):
            return self._sized(name, at, path)
        if at >= len(self._data):
            raise _Found(path, "the bytes end within the value", at)
        if self._data[at] > 1:
            raise _Found(path, f"{self._data[at]} is not a boolean", at)
        return at + 1

    def _sized(self, name: str, at: int, path: str) -> int:
        n, start = self._long(at, path)
        left = len(self._data) - start
        if not 0 <= n <= left:
            raise _Found(path, f"length {n} with {left} bytes left", at)
        if name == "string":
            try:
                self._data[start : start + n].decode()
            except UnicodeDecodeError as error:
                raise _Found(path, f"not UTF-8: {error.reason}", start + error.start) from error
        return start + n

    def _choice(self, count: int, at: int, path: str, what: str) -> tuple[int, int]:
        n, end = self._long(at, path)
        if not 0 <= n < count or end != at + 1:
            raise _Found(path, f"{what} {n} of {count}", at)
        return n, end

    def _blocks(self, schema: Array, at: int, path: str) -> int:
        had = 0
        while True:
            head = at
            try:
                count, at, stop = wire.read_block(self._data, at, had)
            except (wire.Refused, IndexError) as error:
                raise _Found(path, "a block count or size beyond the bytes left", head) from error
            if not count:
                return at
            for i in range(had, had + count):
                at = self.value(schema.items, at, f"{path}[{i}]")
            had += count
            if stop >= 0 and at != stop:
                raise _Found(path, "a block's size is not that of its elements", head)

    def _long(self, at: int, path: str) -> tuple[int, int]:
        try:
            return wire.read_long(self._data, at)
        except IndexError as error:
            raise _Found(path, "the bytes end within the value", at) from error
        except wire.Refused as error:
            raise _Found(path, "a number over 64 bits", at) from error
