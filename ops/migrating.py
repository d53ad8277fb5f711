"""A rehearsal: kept contexts go through the code's upcasters, and nothing is written."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dalsegno.ops.folding import Folded
from dalsegno.ops.following import HeldContext, follow, held_context
from dalsegno.schemas import values
from dalsegno.schemas.blob import Blob
from dalsegno.storage.blobs.errors import BlobCorrupt, BlobMissing
from dalsegno.streams.client.schema import ContextSchema
from dalsegno.streams.client.schema_errors import (
    FieldRefused,
    UpcastFailed,
    VersionMismatchError,
)
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.runstate import Run


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


class Rehearsal:
    """Over the runs of one flow: how many runs and fields were tried, and what fails."""

    def __init__(self, flow: str, schema: ContextSchema, *, live_only: bool = False) -> None:
        self._flow = flow
        self._schema = schema
        self._live_only = live_only
        self.runs = 0
        self.fields = 0
        self.faults: list[MigrationFault] = []

    def partition(
        self, folded: Iterator[Folded], read_blob: Callable[[Blob], bytes] = no_store
    ) -> None:
        """All runs of a partition: ended ones as they end, the others as they are in the end.

        Raises as the fold, and as `migration_faults`.
        """
        live: dict[str, Run] = {}
        tried: dict[str, tuple[int, list[MigrationFault]]] = {}

        def forget(run_id: str) -> None:
            live.pop(run_id, None)
            tried.pop(run_id, None)

        def attempt(run: Run) -> None:
            held = held_context(run)
            found = list(migration_faults(held, self._schema, read_blob))
            tried[run.id] = len(held.versions), found

        for run in follow(folded, lambda run: run.head.flow == self._flow, forget):
            if run.head.state not in FINAL_RUNS:
                live[run.id] = run
                continue
            live.pop(run.id, None)
            if not self._live_only:
                attempt(run)
        for run in live.values():
            attempt(run)
        self.runs += len(tried)
        for fields, found in tried.values():
            self.fields += fields
            self.faults += found


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
