"""Avro schemas as typed values: what the compiler, the diagnosis and the compatibility check read.

Named types may refer to themselves, so `Record` is filled after it is made; nobody changes it
later.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dalsegno.schemas.errors import SchemaFileError

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type by its Avro name."""

    name: str


@dataclass(frozen=True, slots=True)
class Array:
    """An array of one element type."""

    items: AvroType


@dataclass(frozen=True, slots=True)
class Map:
    """A map from string to one value type."""

    values: AvroType


@dataclass(frozen=True, slots=True)
class Union:
    """One of several branches, told apart by their index."""

    branches: tuple[AvroType, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Exactly `size` bytes. `name` is the full name."""

    name: str
    size: int
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Enumeration:
    """One of `symbols`. `default` stands for what a reader does not know (None: refused)."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record; `default` counts only with `has_default`, and is JSON as in the file."""

    name: str
    type: AvroType
    doc: str = ""
    has_default: bool = False
    default: object = None
    aliases: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Record:
    """A record with its fields in wire order. `name` is the full name. Equal only to itself."""

    name: str
    doc: str = ""
    fields: tuple[Field, ...] = ()
    aliases: tuple[str, ...] = field(default=())

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]


AvroType: TypeAlias = Primitive | Array | Map | Union | Fixed | Enumeration | Record


def parse(text: str | bytes) -> AvroType:
    """The schema in a JSON text. Raises `SchemaFileError` for whatever Avro does not allow."""
    try:
        return parse_json(json.loads(text))
    except json.JSONDecodeError as error:
        raise SchemaFileError(f"the schema is not JSON: {error}") from error


def parse_json(node: object) -> AvroType:
    """The schema in decoded JSON. Raises `SchemaFileError`."""
    try:
        return _Parser().read(node, "")
    except (KeyError, TypeError, AttributeError) as error:
        raise SchemaFileError(f"the schema lacks or misuses {error}") from error


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def read(self, node: object, namespace: str) -> AvroType:
        if isinstance(node, str):
            return self._reference(node, namespace)
        if isinstance(node, list):
            return Union(tuple(self.read(branch, namespace) for branch in node))
        if not isinstance(node, dict):
            raise SchemaFileError(f"{node!r} is not a schema")
        kind = node["type"]
        if isinstance(kind, (dict, list)):
            return self.read(kind, namespace)
        if kind == "array":
            return Array(self.read(node["items"], namespace))
        if kind == "map":
            return Map(self.read(node["values"], namespace))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(node, kind, namespace)
        if kind in PRIMITIVES:
            return Primitive(kind)
        return self._reference(kind, namespace)

    def _reference(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = _full_name(name, namespace)
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise SchemaFileError(f"the schema names {full!r} before it defines it")
        return found

    def _define(self, node: dict[str, Any], kind: str, namespace: str) -> AvroType:
        name = _full_name(node["name"], node.get("namespace", namespace))
        inner = name.rpartition(".")[0]
        if name in self._named:
            raise SchemaFileError(f"the schema defines {name!r} twice")
        aliases = tuple(_full_name(alias, inner) for alias in node.get("aliases", ()))
        if kind == "fixed":
            return self._add(name, Fixed(name, node["size"], aliases))
        if kind == "enum":
            symbols = tuple(node["symbols"])
            return self._add(name, Enumeration(name, symbols, node.get("default"), aliases))
        record = Record(name, node.get("doc", ""), aliases=aliases)
        self._add(name, record)
        record.fields = tuple(self._field(each, inner) for each in node["fields"])
        return record

    def _add(self, name: str, defined: AvroType) -> AvroType:
        self._named[name] = defined
        return defined

    def _field(self, node: dict[str, Any], namespace: str) -> Field:
        return Field(
            name=node["name"],
            type=self.read(node["type"], namespace),
            doc=node.get("doc", ""),
            has_default="default" in node,
            default=node.get("default"),
            aliases=tuple(node.get("aliases", ())),
        )


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
