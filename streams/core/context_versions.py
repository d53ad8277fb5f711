"""Which version of the context schema the value of each field is of.

A run's values are of the version that it began with, but for those that code of another version has
set since: `RunHead.field_versions` names these. Only whoever sets a field as a whole says of which
version it now is. What changes a field in part has to be of the version that the field has, since
no value can be of two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dalsegno.schemas.outputs import FieldVersion
from dalsegno.streams.core.bounds import utf8_bytes
from dalsegno.streams.core.context import ContextChange
from dalsegno.streams.core.context_errors import ContextError, pointer
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.runstate import RunHead

_VERSION_BYTES: Final = 8
# A version is an `int` of Avro, and 0 says nothing.
VERSION_MAX: Final = 2**31 - 1


class VersionMixed(ContextError):  # noqa: N818 - a refusal
    """A write of one schema version would change a value of another one in part."""

    def __init__(self, field: str, held: int, written: int) -> None:
        super().__init__(
            pointer((field,)),
            f"holds a value of schema version {held}, what changes it in part is of {written}",
        )
        self.field = field
        self.held = held
        self.written = written


def version_of(head: RunHead, field: str) -> int:
    """The schema version of the field's value."""
    for name, version in head.field_versions:
        if name == field:
            return version
    return head.context_schema_version


def of_fields(head: RunHead, fields: Iterable[str]) -> tuple[FieldVersion, ...]:
    """Those of `fields` that are of another version than the run, for a handoff."""
    if not head.field_versions:
        return ()
    asked = frozenset(fields)
    return tuple(
        FieldVersion(name, version) for name, version in head.field_versions if name in asked
    )


def versions_bytes(head: RunHead, fields: Iterable[str]) -> int:
    """About what they take in a handoff."""
    return sum(utf8_bytes(each.field) + _VERSION_BYTES for each in of_fields(head, fields))


def note_versions(draft: Draft, change: ContextChange, written: int) -> None:
    """Takes down of which version the fields are that `change` leaves. `written`: of its values,
    or 0 if that was not said.

    Raises `VersionMixed`, and `ContextError` for a version that is none.
    """
    head = draft.head
    if not 0 <= written <= VERSION_MAX:
        raise ContextError("", f"a schema version is a number from 1, not {written}")
    if not head.field_versions and written in (0, head.context_schema_version):
        return
    if written:
        for name in change.changed:
            held = version_of(head, name)
            if held != written and name not in change.whole and change.get(name) is not None:
                raise VersionMixed(name, held, written)
    versions = dict(head.field_versions)
    for name in change.changed:
        if change.get(name) is None:
            versions.pop(name, None)
    if written:
        for name in change.whole:
            if change.get(name) is None or written == head.context_schema_version:
                versions.pop(name, None)
            else:
                versions[name] = written
    head.field_versions = tuple(sorted(versions.items()))
