"""Compiles a schema into a function from a record of our classes straight to Avro bytes.

The generated code checks the exact type of each value (no subclass, no bool for int), its range and
its text, and raises `Refused` or `UnicodeEncodeError`; it makes no dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dalsegno.schemas import wire
from dalsegno.schemas.avro_types import Array, AvroType, Enumeration, Primitive, Record, Union
from dalsegno.schemas.errors import SchemaFileError
from dalsegno.schemas.source import Source

_PYTHON_TYPES = {
    "int": "int",
    "long": "int",
    "boolean": "bool",
    "bytes": "bytes",
}


def compile_encoder(
    schema: Record, classes: Mapping[str, type], head: bytes
) -> Callable[[Any], bytes]:
    """The encoder of a record schema; every result starts with `head`."""
    return _Encoder(classes).function(schema, head)


class _Encoder:
    def __init__(self, classes: Mapping[str, type]) -> None:
        self._classes = classes

    def function(self, schema: Record, head: bytes) -> Callable[[Any], bytes]:
        source = Source(
            {
                "Refused": wire.Refused,
                "SMALL": wire.SMALL,
                "pack_varint": wire.pack_varint,
                "pack_long": wire.pack_long,
                "pack_int": wire.pack_int,
            }
        )
        with source.block("def encode(record)"):
            pieces = [source.bind("HEAD", head), *self._fields(source, schema, "record")]
            source.line(f"return b''.join(({', '.join(pieces)},))")
        return source.build("encode", f"<encoder of {schema.name}>")

    def _fields(self, source: Source, schema: Record, record: str) -> list[str]:
        pieces: list[str] = []
        for field in schema.fields:
            value = source.name("x")
            source.line(f"{value} = {record}.{field.name}")
            pieces += self._value(source, field.type, value)
        return pieces

    def _value(self, source: Source, schema: AvroType, value: str) -> list[str]:
        """Emit checks of `value`; return expressions for its bytes, in order."""
        if isinstance(schema, Primitive):
            return self._primitive(source, schema.name, value)
        if isinstance(schema, Enumeration):
            return [self._enumeration(source, schema, value)]
        if isinstance(schema, Array):
            return [self._array(source, schema, value)]
        if isinstance(schema, Union):
            return [self._optional(source, schema, value)]
        if isinstance(schema, Record):
            self._check(source, value, source.bind("Class", self._classes[schema.short_name]))
            return self._fields(source, schema, value)
        raise SchemaFileError(f"the codec does not write {schema}")

    def _primitive(self, source: Source, name: str, value: str) -> list[str]:
        if name == "string":
            self._check(source, value, "str")
            packed, size = source.name("b"), source.name("n")
            with source.block(f"if {value}"):
                source.line(f"{packed} = {value}.encode()")
                source.line(f"{size} = len({packed})")
            with source.block("else"):
                source.line(f"{packed} = b''")
                source.line(f"{size} = 0")
            return [_size(size), packed]
        if name not in _PYTHON_TYPES:
            raise SchemaFileError(f"the codec does not write {name}")
        self._check(source, value, _PYTHON_TYPES[name])
        if name == "bytes":
            size = source.name("n")
            source.line(f"{size} = len({value})")
            return [_size(size), value]
        if name == "boolean":
            return [f"b'\\1' if {value} else b'\\0'"]
        return [f"SMALL[{value}] if 0 <= {value} <= {wire.SMALL_MAX} else pack_{name}({value})"]

    def _check(self, source: Source, value: str, python_type: str) -> None:
        with source.block(f"if type({value}) is not {python_type}"):
            source.line("raise Refused")

    def _enumeration(self, source: Source, schema: Enumeration, value: str) -> str:
        cls = self._classes[schema.name.rpartition(".")[2]]
        packed = {cls(symbol): wire.SMALL[i] for i, symbol in enumerate(schema.symbols)}
        self._check(source, value, source.bind("Enumeration", cls))
        return f"{source.bind('SYMBOLS', packed)}[{value}]"

    def _array(self, source: Source, schema: Array, value: str) -> str:
        self._check(source, value, "tuple")
        packed = source.name("b")
        with source.block(f"if {value}"):
            out, each = source.name("out"), source.name("x")
            self._count(source, value, out)
            with source.block(f"for {each} in {value}"):
                pieces = self._value(source, schema.items, each)
                source.line(f"{out} += ({', '.join(pieces)},)")
            source.line(f"{out}.append(b'\\0')")
            source.line(f"{packed} = b''.join({out})")
        with source.block("else"):
            source.line(f"{packed} = b'\\0'")
        return packed

    def _count(self, source: Source, value: str, out: str) -> None:
        size = source.name("n")
        source.line(f"{size} = len({value})")
        with source.block(f"if {size} > {wire.ITEMS_MAX}"):
            source.line("raise Refused")
        source.line(f"{out} = [{_size(size)}]")

    def _optional(self, source: Source, schema: Union, value: str) -> str:
        """Our unions are a type and null, in either order."""
        null, branch, other = optional_branches(schema)
        packed = source.name("b")
        with source.block(f"if {value} is None"):
            source.line(f"{packed} = {wire.SMALL[null]!r}")
        with source.block("else"):
            pieces = self._value(source, other, value)
            head = wire.SMALL[branch]
            if len(pieces) == 1:
                source.line(f"{packed} = {head!r} + ({pieces[0]})")
            else:
                source.line(f"{packed} = b''.join(({head!r}, {', '.join(pieces)}))")
        return packed


def _size(name: str) -> str:
    return f"SMALL[{name}] if {name} <= {wire.SMALL_MAX} else pack_varint({name} << 1)"


def optional_branches(schema: Union) -> tuple[int, int, AvroType]:
    """Index of null, index of the other branch, and the other branch."""
    if len(schema.branches) != 2 or Primitive("null") not in schema.branches:
        raise SchemaFileError("the codec knows unions of null and one type only")
    null = schema.branches.index(Primitive("null"))
    return null, 1 - null, schema.branches[1 - null]
