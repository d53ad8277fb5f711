"""Compiles a Python type into the shape of a context field.

A record is a TypedDict, a dataclass or a msgspec class; its keys are all that may be there. The
other types are those that a context holds: `None`, `bool`, `int`, `float`, `str`, `bytes`,
`datetime`, lists, maps from text, and unions, literals and enumerations of them; `Any` and
`object` say nothing. Bounds (`msgspec.Meta`) are held to.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import inspect as types

from dalsegno.streams.client.schema_shape import (
    AnyOf,
    Anything,
    Atom,
    ListOf,
    MapOf,
    Marked,
    OneOf,
    Record,
    Shape,
    within,
)

SECRET_MARK: Final = "secret"  # noqa: S105 - what the mark is called
_BOUNDS: Final = (
    "gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern",
)  # fmt: skip
_ATOMS: Final[dict[type[types.Type], tuple[str, tuple[type, ...]]]] = {
    types.NoneType: ("null", (type(None),)),
    types.BoolType: ("a boolean", (bool,)),
    types.IntType: ("a whole number", (int,)),
    types.FloatType: ("a number", (float, int)),
    types.StrType: ("a text", (str,)),
    types.BytesType: ("bytes", (bytes,)),
    types.DateTimeType: ("a time", (datetime,)),
}
_RECORDS: Final = (types.StructType, types.TypedDictType, types.DataclassType)


class Unsuitable(Exception):  # noqa: N818 - says what is the case
    """A type that no context field can have. `path` leads to it from the field."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(detail)
        self.path = path
        self.detail = detail


def compile_record(cls: type) -> Record:
    """The record that a TypedDict, dataclass or msgspec class declares. Raises `Unsuitable`."""
    try:
        info = types.type_info(cls)
    except (TypeError, NameError) as error:
        raise Unsuitable("", str(error)) from error
    if not isinstance(info, _RECORDS):
        raise Unsuitable("", "declare the fields in a TypedDict, a dataclass or a msgspec class")
    made = _Compiler().shape(info, "")
    assert isinstance(made, Record)
    return made


class _Compiler:
    """One pass over a type; a record that holds itself is one shape."""

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}

    def shape(self, info: types.Type, path: str) -> Shape:
        """Raises `Unsuitable`."""
        if isinstance(info, types.Metadata):
            made = self.shape(info.type, path)
            return Marked(made) if (info.extra or {}).get(SECRET_MARK) else made
        if isinstance(info, _RECORDS):
            return self._record(info, path)
        atom = _ATOMS.get(type(info))
        if atom is not None:
            name, kinds = atom
            return Atom(name, kinds, _bounded(kinds[0], info))
        if isinstance(info, types.AnyType) or _is_object(info):
            return Anything()
        if isinstance(info, types.LiteralType):
            return OneOf(info.values)
        if isinstance(info, types.EnumType):
            return OneOf(tuple(member.value for member in info.cls))
        return self._composed(info, path)

    def _composed(self, info: types.Type, path: str) -> Shape:
        if isinstance(info, types.UnionType):
            return AnyOf(tuple(self.shape(each, path) for each in info.types))
        if isinstance(info, types.ListType):
            return ListOf(self.shape(info.item_type, f"{path}[]"), _bounded(list[object], info))
        if isinstance(info, types.DictType):
            return self._map(info, path)
        name = type(info).__name__.removesuffix("Type").lower()
        if isinstance(info, types.CustomType):
            name = info.cls.__name__
        raise Unsuitable(path, f"a context holds no {name}: declare what it is kept as")

    def _record(self, info: types.Type, path: str) -> Record:
        assert isinstance(info, _RECORDS)
        known = self._records.get(id(info))
        if known is not None:
            return known
        made = self._records[id(info)] = Record(info.cls.__name__)
        if isinstance(info, types.StructType):
            if info.array_like:
                raise Unsuitable(path, f"{info.cls.__name__} is packed as a list (array_like)")
            if info.tag_field is not None:
                made.fields[info.tag_field] = OneOf((info.tag,))
                made.tag = (info.tag_field, info.tag)
        fields = {each.encode_name: each for each in info.fields}
        for name, each in fields.items():
            made.fields[name] = self.shape(each.type, within(path, name))
        tags = tuple(name for name in made.fields if name not in fields)
        made.required = (*tags, *(name for name, each in fields.items() if each.required))
        return made

    def _map(self, info: types.DictType, path: str) -> Shape:
        if not isinstance(_bare(info.key_type), types.StrType | types.AnyType):
            raise Unsuitable(path, "keys of a map are texts")
        bounds = _bounded(dict[object, object], info)
        key = self.shape(info.key_type, path)
        return MapOf(key, self.shape(info.value_type, within(path, "*")), bounds)


def _is_object(info: types.Type) -> bool:
    return isinstance(info, types.CustomType) and info.cls is object


def _bare(info: types.Type) -> types.Type:
    return info.type if isinstance(info, types.Metadata) else info


def _bounded(kind: object, info: types.Type) -> object:
    """The type with its bounds, as msgspec checks it; None where there are none."""
    given = {name: found for name in _BOUNDS if (found := getattr(info, name, None)) is not None}
    return Annotated[kind, msgspec.Meta(**given)] if given else None
