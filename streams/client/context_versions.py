"""What a worker makes of the schema versions in a handoff: whether its code can read the inputs,
how they come to its own version, and which version it writes.

Code without a schema counts as version 1 of any. A run that began without a schema counts as begun
with version 1 of the one that its flow has by now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from dalsegno.schemas import values
from dalsegno.schemas.outputs import Handoff
from dalsegno.schemas.values import Value
from dalsegno.streams.client.failures import Invalid
from dalsegno.streams.client.large import INLINE, Large
from dalsegno.streams.client.schema import ContextSchema
from dalsegno.streams.client.schema_errors import (
    FieldRefused,
    UpcastFailed,
    VersionMismatchError,
)

RELEASED: Final = "version_mismatch"
"""Why a handoff is given back whose inputs this code cannot read."""
_UNTYPED: Final = 1


def mismatch(handoff: Handoff, schema: ContextSchema | None) -> VersionMismatchError | None:
    """Why this code cannot read the handoff's fields, or None."""
    if schema is None:
        return _without_schema(handoff)
    named = handoff.context_schema in {"", schema.name}
    if named and handoff.context_schema_version == schema.version and not handoff.field_versions:
        return None
    if not named:
        # Even if it reads nothing: what it writes would pass for a value of the run's schema.
        base = handoff.context_schema_version
        field, version = next(iter(_versions(handoff).items()), ("", base))
        detail = f"the run's schema is {handoff.context_schema!r}, the code's {schema.name!r}"
        return VersionMismatchError(handoff.run_id, field, version, schema.version, detail)
    for field, version in _versions(handoff).items():
        try:
            schema.readable(field, version, handoff.run_id)
        except VersionMismatchError as error:
            return error
    return None


def _without_schema(handoff: Handoff) -> VersionMismatchError | None:
    named = handoff.context_schema
    # Of a run that began without a schema, only code that has one has set fields of a version.
    known = _UNTYPED if named else handoff.context_schema_version
    if handoff.context_schema_version == known and not handoff.field_versions:
        return None
    for field, version in _versions(handoff).items():
        if version != known:
            detail = f"the run's schema is {named!r}" if named else "newer code has written it"
            detail += ", the code has none"
            return VersionMismatchError(handoff.run_id, field, version, known, detail)
    return None


def read_fields(
    handoff: Handoff, packed: bytes, schema: ContextSchema | None, large: Large = INLINE
) -> dict[str, Value]:
    """Fields of the handoff as this code's version has them, blobs read.

    Raises `Invalid` for those that upcasters or the schema refuse, and as `Blobs.get`.
    """
    fields = values.unpack_map(packed)
    whole = {field: large.whole(value) for field, value in fields.items()}
    return as_of_code(handoff, whole, schema, large.secrets)


def as_of_code(
    handoff: Handoff,
    fields: dict[str, Value],
    schema: ContextSchema | None,
    secrets: Collection[str],
) -> dict[str, Value]:
    """Some fields of the handoff, blobs read, as this code's version has them. Raises `Invalid`,
    without the words of an upcaster of a field that is secret.
    """
    if schema is None:
        return fields
    try:
        return schema.read(fields, _versions_of(handoff, fields), handoff.run_id)
    except UpcastFailed as error:
        if error.field not in secrets:
            raise Invalid(str(error), error_class=type(error).__name__) from error
        # What an exception says may be the value itself.
        quiet = UpcastFailed(schema.name, error.field, error.found, "failed on a secret field")
        raise Invalid(str(quiet), error_class=type(quiet).__name__) from None
    except (FieldRefused, VersionMismatchError) as error:
        raise Invalid(str(error), error_class=type(error).__name__) from error


def written_version(handoff: Handoff, schema: ContextSchema | None) -> int:
    """The version to say of what this code writes; without a schema, in a run without one, that
    which the run began with.
    """
    if schema is not None:
        return schema.version
    return _UNTYPED if handoff.context_schema else max(0, handoff.context_schema_version)


def _versions(handoff: Handoff) -> dict[str, int]:
    """The version of each field that the handoff holds."""
    names = list(values.unpack_map(handoff.inputs))
    if handoff.wrote and handoff.undoes_completed:
        names += values.unpack_map(handoff.wrote)
    return _versions_of(handoff, names)


def _versions_of(handoff: Handoff, names: Iterable[str]) -> dict[str, int]:
    newer = {each.field: each.version for each in handoff.field_versions}
    return {name: newer.get(name, handoff.context_schema_version) for name in names}
