"""A rehearsal: kept contexts go through the code's upcasters, and nothing is written."""

from collections.abc import Iterator
from typing import NamedTuple

from dalsegno.ops.following import HeldContext
from dalsegno.schemas import values
from dalsegno.streams.client.schema import ContextSchema
from dalsegno.streams.client.schema_errors import (
    FieldRefused,
    UpcastFailed,
    VersionMismatchError,
)


class MigrationFault(NamedTuple):
    """A field that this code could not read. `version`: of its value; `known`: of the code."""

    run_id: str
    state: str
    field: str
    version: int
    known: int
    error: str
    detail: str


def migration_faults(held: HeldContext, schema: ContextSchema) -> Iterator[MigrationFault]:
    """Each field of the context that a worker of this code would fail on.

    A value is never shown: a fault of a secret field is told without its words.
    """
    if held.schema not in {"", schema.name}:
        detail = f"the run's schema is {held.schema!r}, the code's {schema.name!r}"
        other = VersionMismatchError(held.run_id, "", held.schema_version, schema.version, detail)
        yield _fault(held, "", schema, other, str(other))
        return
    for field, value in values.unpack_map(held.context).items():
        version = held.versions[field]
        try:
            schema.read({field: value}, {field: version}, held.run_id)
        except (FieldRefused, UpcastFailed, VersionMismatchError) as error:
            secret = field in held.secrets or field in schema.secrets
            quiet = secret and not isinstance(error, VersionMismatchError)
            detail = "a secret field: try the upcaster on an example" if quiet else str(error)
            yield _fault(held, field, schema, error, detail)


def _fault(
    held: HeldContext, field: str, schema: ContextSchema, error: Exception, detail: str
) -> MigrationFault:
    return MigrationFault(
        run_id=held.run_id,
        state=str(held.state),
        field=field,
        version=held.versions.get(field, held.schema_version),
        known=schema.version,
        error=type(error).__name__,
        detail=detail,
    )
