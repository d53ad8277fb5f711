"""What a context field may hold, as a tree that answers whether a value fits.

Nothing is converted: a value fits as it is, or it does not. A whole number does for a `float`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from dalsegno.schemas.blob import Blob

_NAMES: Final[dict[type, str]] = {
    type(None): "null", bool: "a boolean", int: "a whole number", float: "a number",
    str: "a text", bytes: "bytes", datetime: "a time", list: "a list", dict: "a map",
}  # fmt: skip

Misfit: TypeAlias = tuple[str, str]
"""The path to what does not fit, and why."""


class Shape:
    """Answers whether a value fits. `secret`: it is marked as one; see `holds_secret`."""

    __slots__ = ("name", "secret")

    def __init__(self, name: str, *, secret: bool = False) -> None:
        self.name = name
        self.secret = secret

    @property
    def parts(self) -> tuple[Shape, ...]:
        """The shapes that values inside it have."""
        return ()

    def misfit(self, value: object, path: str) -> Misfit | None:
        """Why the value at `path` does not fit; None when it does. A blob does: what it holds is
        checked by who reads it.
        """
        return None if type(value) is Blob else self._misfit(value, path)

    def _misfit(self, value: object, path: str) -> Misfit | None:
        raise NotImplementedError

    def _other(self, value: object, path: str) -> Misfit:
        found = _NAMES.get(type(value), f"a {type(value).__name__}")
        return path, f"expected {self.name}, not {found}"


class Anything(Shape):
    """Whatever a context holds."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("anything")

    def _misfit(self, value: object, path: str) -> Misfit | None:  # noqa: ARG002 - nothing is asked
        return None


class Atom(Shape):
    """A value without parts. `bounds`: its type with bounds, as msgspec checks it, or None."""

    __slots__ = ("_bounds", "_kinds")

    def __init__(self, name: str, kinds: tuple[type, ...], bounds: object) -> None:
        super().__init__(name)
        self._kinds = kinds
        self._bounds = bounds

    def _misfit(self, value: object, path: str) -> Misfit | None:
        if type(value) not in self._kinds:
            return self._other(value, path)
        if self._bounds is not None:
            try:
                msgspec.convert(value, self._bounds)
            except msgspec.ValidationError as error:
                return path, str(error)
        return None


class OneOf(Shape):
    """A literal, or a member of an enumeration."""

    __slots__ = ("_values",)

    def __init__(self, values: tuple[object, ...]) -> None:
        super().__init__(" or ".join(map(repr, values)))
        self._values = frozenset((type(value), value) for value in values)

    def _misfit(self, value: object, path: str) -> Misfit | None:
        known = isinstance(value, str | int | None) and (type(value), value) in self._values
        return None if known else (path, f"expected {self.name}")


class ListOf(Shape):
    """A list of items of one shape."""

    __slots__ = ("_bounds", "_item")

    def __init__(self, item: Shape, bounds: object) -> None:
        super().__init__("a list")
        self._item = item
        self._bounds = bounds

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self._item,)

    def _misfit(self, value: object, path: str) -> Misfit | None:
        if type(value) is not list:
            return self._other(value, path)
        if fault := _outside(value, self._bounds):
            return path, fault
        return _first(self._item.misfit(each, f"{path}[{i}]") for i, each in enumerate(value))


class MapOf(Shape):
    """A map of any texts to values of one shape."""

    __slots__ = ("_bounds", "_key", "_value")

    def __init__(self, key: Shape, value: Shape, bounds: object) -> None:
        super().__init__("a map")
        self._key = key
        self._value = value
        self._bounds = bounds

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self._key, self._value)

    def _misfit(self, value: object, path: str) -> Misfit | None:
        if type(value) is not dict:
            return self._other(value, path)
        if fault := _outside(value, self._bounds):
            return path, fault
        return _first(
            self._key.misfit(key, within(path, str(key)))
            or self._value.misfit(each, within(path, str(key)))
            for key, each in value.items()
        )


class Record(Shape):
    """A map with these keys and no others. `required` must be there. `tag`: the key and value that
    tell it from other records.
    """

    __slots__ = ("fields", "required", "tag")

    def __init__(self, name: str) -> None:
        super().__init__(f"a {name}")
        self.fields: dict[str, Shape] = {}
        self.required: tuple[str, ...] = ()
        self.tag: tuple[str, object] | None = None

    @property
    def parts(self) -> tuple[Shape, ...]:
        return tuple(self.fields.values())

    def tagged(self, value: object) -> bool:
        """Whether the value says by its tag that it is this record."""
        if self.tag is None or not isinstance(value, dict):
            return False
        field, tag = self.tag
        return value.get(field) == tag

    def _misfit(self, value: object, path: str) -> Misfit | None:
        if type(value) is not dict:
            return self._other(value, path)
        for key, each in value.items():
            shape = self.fields.get(key)
            if shape is None:
                known = ", ".join(self.fields) or "none"
                return within(path, str(key)), f"the schema has no such field (it has: {known})"
            if found := shape.misfit(each, within(path, key)):
                return found
        for key in self.required:
            if key not in value:
                return within(path, key), "is required and missing"
        return None


class AnyOf(Shape):
    """One of several shapes."""

    __slots__ = ("_members",)

    def __init__(self, members: tuple[Shape, ...]) -> None:
        super().__init__(" or ".join(each.name for each in members))
        self._members = members

    @property
    def parts(self) -> tuple[Shape, ...]:
        return self._members

    def _misfit(self, value: object, path: str) -> Misfit | None:
        found = [each.misfit(value, path) for each in self._members]
        if None in found:
            return None
        for member in self._members:
            if isinstance(member, Record) and member.tagged(value):
                return member.misfit(value, path)
        inside = [each for each in found if each is not None and each[0] != path]
        # One member is of the right sort, and something inside it is not.
        return inside[0] if len(inside) == 1 else self._other(value, path)


class Marked(Shape):
    """A shape that is marked, where it is used."""

    __slots__ = ("_shape",)

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape.name, secret=True)
        self._shape = shape

    def _misfit(self, value: object, path: str) -> Misfit | None:
        return self._shape.misfit(value, path)


def within(path: str, key: str) -> str:
    """The path of a map's key, or of what a path leads to inside a value."""
    return f"{path}{'' if key.startswith('[') else '.'}{key}" if path and key else path or key


def holds_secret(shape: Shape) -> bool:
    """Whether the shape, or any inside it, is marked as a secret."""
    seen: set[int] = set()
    left = [shape]
    while left:
        each = left.pop()
        if each.secret:
            return True
        if id(each) not in seen:
            seen.add(id(each))
            left.extend(each.parts)
    return False


def _first(found: Iterator[Misfit | None]) -> Misfit | None:
    return next((each for each in found if each is not None), None)


def _outside(value: list[object] | dict[object, object], bounds: object) -> str:
    if bounds is None:
        return ""
    try:
        msgspec.convert(value, bounds)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
