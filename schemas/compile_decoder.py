"""Compiles a writer's schema into a function from Avro bytes straight to a record of our classes.

`decode(data, at)` returns the record and the next position. It follows the writer's schema and
gives the fields of today's schema: a field that the writer lacks takes the class's default, one
that today's schema lacks is read and dropped, numbers widen. It raises `IndexError`,
`UnicodeDecodeError` or `Refused`. A text near the end may run past it; the caller compares the last
position with the length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from dalsegno.schemas import diagnosis, wire
from dalsegno.schemas.avro_types import Array, AvroType, Enumeration, Primitive, Record, Union
from dalsegno.schemas.compile_encoder import compile_encoder, optional_branches
from dalsegno.schemas.errors import SchemaFileError
from dalsegno.schemas.recent import Recent
from dalsegno.schemas.source import Source

REMEMBERED: Final = frozenset({"dalsegno.Plan"})
"""Large records that come again and again, the same."""
ONE_BYTE_SYMBOLS: Final = 64

Decode = Callable[[bytes, int], tuple[Any, int]]


def compile_decoder(writer: Record, reader: Record, classes: Mapping[str, type]) -> Decode:
    """The decoder of records written by `writer` into the classes that `reader` describes."""
    return _Decoder(classes).function(writer, reader)


class _Decoder:
    def __init__(self, classes: Mapping[str, type]) -> None:
        self._classes = classes

    def function(self, writer: Record, reader: Record) -> Decode:
        source = Source(
            {
                "Refused": wire.Refused,
                "ZIGZAG": wire.ZIGZAG,
                "ENDS": wire.ENDS,
                "read_long": wire.read_long,
                "read_int": wire.read_int,
                "read_size": wire.read_size,
                "read_block": wire.read_block,
            }
        )
        with source.block("def decode(data, at)"):
            self._fields(source, writer, reader, "record")
            source.line("return record, at")
        return source.build("decode", f"<decoder of {writer.name}>")

    def _fields(self, source: Source, writer: Record, reader: Record, record: str) -> None:
        """Emit code that reads the fields and makes the record."""
        wanted = {field.name: field for field in reader.fields}
        given = []
        for field in writer.fields:
            target = wanted.get(field.name)
            if target is None:
                skip = source.bind("skip", partial(diagnosis.skip, field.type))
                source.line(f"at = {skip}(data, at)")
                continue
            value = source.name("x")
            self._value(source, field.type, target.type, value)
            given.append(f"{field.name}={value}")
        name = source.bind("Class", self._classes[reader.short_name])
        source.line(f"{record} = {name}({', '.join(given)})")

    def _nested(self, source: Source, writer: Record, reader: Record, value: str) -> None:
        if writer.name in REMEMBERED:
            recent = source.bind("recent", Recent(self.function(writer, reader)))
            source.line(f"{value}, at = {recent}(data, at)")
        elif writer is reader and all(field.has_default for field in reader.fields):
            # A short way for records that are often all defaults: Avro bytes are prefix-free.
            default = self._classes[reader.short_name]()
            packed = compile_encoder(reader, self._classes, b"")(default)
            name = source.bind("PACKED", packed)
            with source.block(f"if data.startswith({name}, at)"):
                source.line(f"{value} = {source.bind('DEFAULT', default)}")
                source.line(f"at += {len(packed)}")
            with source.block("else"):
                self._fields(source, writer, reader, value)
        else:
            self._fields(source, writer, reader, value)

    def _value(self, source: Source, writer: AvroType, reader: AvroType, value: str) -> None:
        """Emit code that reads a `writer` value into the variable `value` as `reader` sees it."""
        if isinstance(reader, Union) and not isinstance(writer, Union):
            _, _, reader = optional_branches(reader)
        if isinstance(writer, Union):
            self._optional(source, writer, reader, value)
        elif isinstance(writer, Primitive) and isinstance(reader, Primitive):
            self._primitive(source, writer.name, reader.name, value)
        elif isinstance(writer, Enumeration) and isinstance(reader, Enumeration):
            self._enumeration(source, writer, reader, value)
        elif isinstance(writer, Array) and isinstance(reader, Array):
            self._array(source, writer, reader, value)
        elif isinstance(writer, Record) and isinstance(reader, Record):
            self._nested(source, writer, reader, value)
        else:
            raise SchemaFileError(f"the codec does not read {writer} as {reader}")

    def _primitive(self, source: Source, writer: str, reader: str, value: str) -> None:
        if writer != reader and (writer, reader) != ("int", "long"):
            raise SchemaFileError(f"the codec does not read {writer} as {reader}")
        if writer in ("string", "bytes"):
            self._sized(source, writer, value)
        elif writer in ("int", "long"):
            source.line("n = data[at]")
            with source.block("if n < 128"):
                source.line(f"{value} = ZIGZAG[n]")
                source.line("at += 1")
            with source.block("else"):
                source.line(f"{value}, at = read_{writer}(data, at)")
        elif writer == "boolean":
            source.line("n = data[at]")
            source.line("at += 1")
            with source.block("if n > 1"):
                source.line("raise Refused")
            source.line(f"{value} = n == 1")
        else:
            raise SchemaFileError(f"the codec does not read {writer}")

    def _sized(self, source: Source, writer: str, value: str) -> None:
        decode, empty = (".decode()", "''") if writer == "string" else ("", "b''")
        source.line("n = data[at]")
        with source.block("if n & 129"):  # more than one byte, or negative
            source.line("n, at = read_size(data, at)")
            source.line("end = at + n")
            source.line(f"{value} = data[at:end]{decode}")
            source.line("at = end")
        with source.block("elif n"):
            source.line("end = at + ENDS[n]")
            source.line(f"{value} = data[at + 1:end]{decode}")
            source.line("at = end")
        with source.block("else"):
            source.line(f"{value} = {empty}")
            source.line("at += 1")

    def _enumeration(
        self, source: Source, writer: Enumeration, reader: Enumeration, value: str
    ) -> None:
        """One byte names the symbol: the table has it at twice its index, and None elsewhere."""
        if len(writer.symbols) > ONE_BYTE_SYMBOLS:
            raise SchemaFileError(f"{writer.name} has more symbols than one byte names")
        cls = self._classes[reader.name.rpartition(".")[2]]
        known = set(reader.symbols)
        members: list[object] = [None] * 256
        for i, symbol in enumerate(writer.symbols):
            if symbol in known:
                members[2 * i] = cls(symbol)
            elif reader.default is not None:
                members[2 * i] = cls(reader.default)
        source.line(f"{value} = {source.bind('MEMBERS', tuple(members))}[data[at]]")
        with source.block(f"if {value} is None"):
            source.line("raise Refused")
        source.line("at += 1")

    def _array(self, source: Source, writer: Array, reader: Array, value: str) -> None:
        each, items = source.name("x"), source.name("items")
        with source.block("if data[at]"):
            source.line(f"{items} = []")
            with self._blocks(source, items):
                self._value(source, writer.items, reader.items, each)
                source.line(f"{items}.append({each})")
            source.line(f"{value} = tuple({items})")
        with source.block("else"):
            source.line("at += 1")
            source.line(f"{value} = ()")

    @contextmanager
    def _blocks(self, source: Source, items: str) -> Iterator[None]:
        """The two loops round the elements of an array or map: over blocks, and within one."""
        count, stop = source.name("count"), source.name("stop")
        with source.block("while True"):
            source.line("n = data[at]")
            with source.block("if n & 129"):  # more than one byte, or negative
                source.line(f"{count}, at, {stop} = read_block(data, at, len({items}))")
            with source.block("else"):
                source.line(f"{count} = n >> 1")
                source.line("at += 1")
                source.line(f"{stop} = -1")
            with source.block(f"if not {count}"):
                source.line("break")
            with source.block(f"for _ in range({count})"):
                yield
            overfull = f"len({items}) > {wire.ITEMS_MAX}"
            with source.block(f"if {stop} >= 0 and at != {stop} or {overfull}"):
                source.line("raise Refused")

    def _optional(self, source: Source, writer: Union, reader: AvroType, value: str) -> None:
        null, branch, other = optional_branches(writer)
        source.line("n = data[at]")
        source.line("at += 1")
        with source.block(f"if n == {2 * branch}"):
            target = optional_branches(reader)[2] if isinstance(reader, Union) else reader
            self._value(source, other, target, value)
        if isinstance(reader, Union):
            with source.block(f"elif n == {2 * null}"):
                source.line(f"{value} = None")
        with source.block("else"):
            source.line("raise Refused")
