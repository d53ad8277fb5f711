"""A rehearsal: kept contexts go through the code's upcasters, and nothing is written."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dalsegno.ops.following import HeldContext
from dalsegno.schemas import values
from dalsegno.schemas.blob import Blob
from dalsegno.storage.blobs.errors import BlobCorrupt, BlobMissing
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


class BlobUnread(Exception):  # noqa: N818 - says what is the case
    """A large value that cannot be tried, since there is no store to read it from."""


def no_store(blob: Blob) -> bytes:
    """For contexts without a store of blobs beside them."""
    raise BlobUnread(f"{blob} was not read: set DALSEGNO_ARCHIVE_BUCKET (docs/blobs.md)")


def migration_faults(
    held: HeldContext, schema: ContextSchema, read_blob: Callable[[Blob], bytes] = no_store
) -> Iterator[MigrationFault]:
    """Each field of the context that a worker of this code would fail on.

    `read_blob` gives the bytes of a large value. Raises `ArchiveError` when the store is in
    trouble.
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
            schema.readable(field, version, held.run_id)
            schema.read({field: _whole(value, read_blob)}, {field: version}, held.run_id)
        except (BlobMissing, BlobCorrupt, BlobUnread) as error:
            yield _fault(held, field, schema, error, str(error))
        except (FieldRefused, UpcastFailed, VersionMismatchError) as error:
            secret = field in held.secrets or field in schema.secrets
            quiet = secret and not isinstance(error, VersionMismatchError)
            detail = "a secret field: try the upcaster on an example" if quiet else str(error)
            yield _fault(held, field, schema, error, detail)


def _whole(value: values.Value, read_blob: Callable[[Blob], bytes]) -> values.Value:
    """The value with what its blobs stand for in their place."""
    if isinstance(value, Blob):
        return values.unpack(read_blob(value), bytes_max=value.size)
    if isinstance(value, dict):
        return {key: _whole(each, read_blob) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each, read_blob) for each in value]
    return value


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
