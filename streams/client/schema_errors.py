"""What can be wrong with a context and its schema, from the side of the code that declares it.

`SchemaError`: the declaration itself; mend the program. `FieldRefused`: a value is not what the
schema says; mend the value. `VersionMismatchError`: this code cannot read a context of that
version; another release may. `UpcastFailed`: an upcaster is broken; mend it.
"""

from __future__ import annotations

from dalsegno.streams.client.errors import ClientError


class SchemaError(ClientError, ValueError):
    """A context schema is declared wrongly. `path` leads to the type or field."""

    def __init__(self, schema: str, path: str, detail: str) -> None:
        super().__init__(f"context schema {schema!r}{f', {path}' if path else ''}: {detail}")
        self.schema = schema
        self.path = path


class FieldRefused(ClientError, ValueError):  # noqa: N818 - a refusal
    """A value is not what the context's schema says of it. `path` leads to it (`a.b[3]`)."""

    def __init__(self, schema: str, version: int, path: str, detail: str) -> None:
        super().__init__(f"context schema {schema!r} version {version}: {path}: {detail}")
        self.schema = schema
        self.version = version
        self.path = path
        self.detail = detail


class VersionMismatchError(ClientError):
    """A context field is of a version that this code cannot read: it is newer, or no upcaster leads
    on from it. `found`: the version of the field's value; `known`: the code's.
    """

    def __init__(self, run_id: str, field: str, found: int, known: int, detail: str) -> None:
        super().__init__(
            f"run {run_id!r}, field {field!r} is of schema version {found}, this code is of "
            f"{known}: {detail}"
        )
        self.run_id = run_id
        self.field = field
        self.found = found
        self.known = known
        self.detail = detail


class UpcastFailed(ClientError):  # noqa: N818 - says what is the case
    """The upcaster of `field` from version `found` to the next raised, or gave what no context
    holds.
    """

    def __init__(self, schema: str, field: str, found: int, detail: str) -> None:
        super().__init__(
            f"context schema {schema!r}: upcaster of {field!r} from version {found} to "
            f"{found + 1}: {detail}"
        )
        self.schema = schema
        self.field = field
        self.found = found
        self.detail = detail
