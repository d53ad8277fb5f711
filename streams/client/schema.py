"""The context of a flow as its code declares it: fields, their types, a name and a version.

A version changes field by field. An upcaster is a pure function from the value of one field of one
version to its value of the next; chained, they lead from any kept version to the code's own. Every
field says for itself which version it is of, so code of several releases may work at one run side
by side, and a step needs no more than the fields that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Final, TypeVar, cast

import msgspec

from dalsegno.schemas import values
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.values import Value
from dalsegno.streams.client.schema_compile import SECRET_MARK, Unsuitable, compile_record
from dalsegno.streams.client.schema_errors import (
    FieldRefused,
    SchemaError,
    UpcastFailed,
    VersionMismatchError,
)
from dalsegno.streams.client.schema_shape import holds_secret, within

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")
_NAME_CHARS_MAX: Final = 128

Secret = Annotated[T, msgspec.Meta(extra={SECRET_MARK: True})]
"""`Secret[str]`: the context field that holds it is masked on record, as a whole."""


class ContextSchema:
    """Declares the context of a flow. Mutable while it is declared, plain data afterwards.

    `shape`: a TypedDict, dataclass or msgspec class with the fields of the context. A field without
    a default (of a TypedDict: that is not `NotRequired`) must be there from the start of a run.
    `examples`: contexts as each version has kept them, whole or in part; `check` and
    `dalsegno check` take them through the upcasters.
    """

    def __init__(
        self,
        name: str,
        shape: type,
        *,
        version: int = 1,
        examples: Mapping[int, Sequence[Mapping[str, object]]] | None = None,
    ) -> None:
        """Raises `SchemaError` for a bad name or version, or a type that no context holds."""
        if not name or len(name) > _NAME_CHARS_MAX:
            raise SchemaError(name, "", f"a schema's name has 1 to {_NAME_CHARS_MAX} characters")
        if type(version) is not int or not 1 <= version < 2**31:
            raise SchemaError(name, "", f"a version is an integer from 1, not {version!r}")
        self._name = name
        self._version = version
        self.examples = dict(examples or {})
        try:
            self._record = compile_record(shape)
        except Unsuitable as error:
            raise SchemaError(name, error.path, error.detail) from error
        self._upcasters: dict[int, dict[str, Callable[[Value], object] | None]] = {}

    def __repr__(self) -> str:
        return f"<ContextSchema {self.name} version {self.version}>"

    @property
    def name(self) -> str:
        """The schema's name."""
        return self._name

    @property
    def version(self) -> int:
        """The code's version of it, from 1."""
        return self._version

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all fields, in the order of the declaration."""
        return tuple(self._record.fields)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Fields that are, or hold, something marked as a `Secret`."""
        return tuple(name for name, shape in self._record.fields.items() if holds_secret(shape))

    def upcast(self, field: str, *, from_version: int) -> Callable[[F], F]:
        """Declare the decorated function as the upcaster of a field to the next version.

        It gets the field's value and returns the new one. It must be pure: the same value always
        gives the same, and nothing else is read or changed. Raises `SchemaError` for a field that
        the schema does not have; of one that a later version removed, say `removed` first.
        """

        def declare(function: F) -> F:
            step = self._step(from_version, field)
            if field not in self._record.fields and not self._removed_after(field, from_version):
                raise SchemaError(self.name, field, self._unknown(field, from_version))
            self._upcasters[from_version] = step
            step[field] = cast(Callable[[Value], object], function)
            return function

        return declare

    def removed(self, field: str, *, from_version: int) -> None:
        """A field of that version that the next does not have: bodies no longer see it. Raises
        `SchemaError` for a field that the schema has and that cannot have come back since.
        """
        step = self._step(from_version, field)
        if field in self._record.fields and from_version == self.version - 1:
            raise SchemaError(
                self.name, field, f"is not removed: version {self.version} of the schema has it"
            )
        self._upcasters[from_version] = step
        step[field] = None

    def unchanged(self, *, from_version: int) -> None:
        """All fields of that version are the same in the next, which has more of them."""
        self._upcasters[from_version] = self._step(from_version, "")

    def upcasts(self, from_version: int) -> frozenset[str] | None:
        """The fields that change from that version to the next; None if no way leads on."""
        step = self._upcasters.get(from_version)
        return None if step is None else frozenset(step)

    def check_value(self, field: str, value: object) -> None:
        """Raises `FieldRefused` for a value that the field cannot have, or an unknown field. What
        a blob holds is checked by who reads it.
        """
        shape = self._record.fields.get(field)
        if shape is None:
            known = ", ".join(self.fields) or "none"
            raise self._refused(field, f"the schema has no such field (it has: {known})")
        if found := shape.misfit(value, field):
            raise self._refused(*found)

    def check_start(self, context: Mapping[str, object]) -> None:
        """Raises `FieldRefused` for a first context that is not what the schema says."""
        for field, value in context.items():
            self.check_value(field, value)
        for field in self._record.required:
            if field not in context:
                raise self._refused(field, "is required and missing")

    def readable(self, field: str, version: int, run_id: str = "") -> None:
        """Raises `VersionMismatchError` if this code cannot read a field of that version."""
        if version > self.version:
            raise VersionMismatchError(
                run_id, field, version, self.version, "a newer release has written it"
            )
        for number in range(version, self.version):
            if number not in self._upcasters:
                detail = f"there is no upcaster from {number} to {number + 1}"
                raise VersionMismatchError(run_id, field, version, self.version, detail)

    def upcast_value(
        self, field: str, value: Value, version: int, run_id: str = ""
    ) -> tuple[Value] | None:
        """The value as this version has it, in a tuple; None for a field that is no longer there.

        Raises `VersionMismatchError`, `UpcastFailed`.
        """
        self.readable(field, version, run_id)
        for number in range(version, self.version):
            step = self._upcasters[number]
            if field not in step:
                continue
            function = step[field]
            if function is None:
                return None
            value = self._called(function, field, number, value)
        return (value,)

    def read(
        self, context: Mapping[str, Value], versions: Mapping[str, int], run_id: str = ""
    ) -> dict[str, Value]:
        """Fields of a context, each of the version that is said of it, as this version has them.

        Raises `VersionMismatchError`, `UpcastFailed`, `FieldRefused`.
        """
        found: dict[str, Value] = {}
        for field, value in context.items():
            made = self.upcast_value(field, value, versions[field], run_id)
            if made is not None:
                self.check_value(field, made[0])
                found[field] = made[0]
        return found

    def _called(
        self, function: Callable[[Value], object], field: str, number: int, value: Value
    ) -> Value:
        try:
            return _copy(cast(Value, function(_copy(value))))
        except ValueRefusedError as error:
            place = within(field, error.path)
            raise UpcastFailed(self.name, field, number, f"{place}: {error.detail}") from error
        # An upcaster is the user's code: whatever it raises is its failure.
        except Exception as error:
            # What an exception says may be the value itself.
            said = type(error).__name__ if field in self.secrets else repr(error)
            raise UpcastFailed(self.name, field, number, f"raised {said}") from error

    def _step(self, from_version: int, field: str) -> dict[str, Callable[[Value], object] | None]:
        if type(from_version) is not int or not 1 <= from_version < self.version:
            raise SchemaError(
                self.name,
                field,
                f"an upcaster leads on from a version below {self.version}, not {from_version!r}",
            )
        step = self._upcasters.get(from_version, {})
        if field in step:
            raise SchemaError(self.name, field, f"has two upcasters from version {from_version}")
        return step

    def _removed_after(self, field: str, from_version: int) -> bool:
        return any(
            number > from_version and field in step and step[field] is None
            for number, step in self._upcasters.items()
        )

    def _unknown(self, field: str, from_version: int) -> str:
        near = get_close_matches(field, self.fields)
        meant = f"did you mean {' or '.join(map(repr, near))}?" if near else "it has: "
        known = "" if near else ", ".join(self.fields) or "none"
        return (
            f"the schema has no such field to upcast from version {from_version} ({meant}{known});"
            f" if a later version removed it, say removed({field!r}, from_version=…) first"
        )

    def _refused(self, path: str, detail: str) -> FieldRefused:
        return FieldRefused(self.name, self.version, path, detail)


def _copy(value: Value) -> Value:
    """What an upcaster does to its argument, or keeps of its result, is nobody else's concern."""
    return values.unpack(values.pack(value))
