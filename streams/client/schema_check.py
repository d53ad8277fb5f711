"""What to mend in a context schema before production: ways between versions, kept examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from dalsegno.schemas import values
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.values import Value
from dalsegno.streams.client.finding import Finding, Severity
from dalsegno.streams.client.schema import ContextSchema
from dalsegno.streams.client.schema_errors import (
    FieldRefused,
    UpcastFailed,
    VersionMismatchError,
)

_EXAMPLE: Final = "context_example"


def schema_findings(schema: ContextSchema) -> Iterator[Finding]:
    """Every finding: a version that no upcaster leads on from, an upcaster without an example, and
    each example that does not come through.
    """
    newest = schema.version
    if newest > 1 and schema.upcasts(newest - 1) is None:
        yield _finding(
            Severity.ERROR,
            "no_upcaster",
            f"context schema {schema.name!r} is of version {newest} and nothing leads on from "
            f"{newest - 1}: declare upcasters, or unchanged(from_version={newest - 1})",
        )
    for number in range(1, newest):
        kept = schema.examples.get(number, ())
        for field in sorted(schema.upcasts(number) or ()):
            if not any(field in example for example in kept):
                yield _finding(
                    Severity.WARNING,
                    "upcaster_without_example",
                    f"context schema {schema.name!r}: no example of version {number} has "
                    f"{field!r}, so its upcaster is not tried",
                )
    for number, kept in sorted(schema.examples.items()):
        for i, example in enumerate(kept):
            for fault in _faults(schema, number, example):
                what = f"context schema {schema.name!r}: example {i + 1} of version {number}"
                yield _finding(Severity.ERROR, _EXAMPLE, f"{what}: {fault}")


def _faults(schema: ContextSchema, number: int, example: Mapping[str, object]) -> Iterator[str]:
    """Field by field, as a worker would read it; each twice, since an upcaster is pure."""
    for field, value in example.items():
        try:
            packed = values.pack(cast(Value, value))
            made = [schema.read({field: values.unpack(packed)}, {field: number}) for _ in range(2)]
        except (FieldRefused, UpcastFailed, VersionMismatchError) as error:
            yield str(error)
        except ValueRefusedError as error:
            yield f"{field}: {error}"
        else:
            if values.pack(made[0]) != values.pack(made[1]):
                yield f"{field}: its upcasters are not pure: they gave two values for one"


def _finding(severity: Severity, code: str, message: str) -> Finding:
    return Finding(severity, code, "", message)
