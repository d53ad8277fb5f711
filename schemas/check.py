"""Checks of the contract's own schema files: what `dalsegno schemas check` runs.

Every pair of versions of a kind must be compatible, not neighbours only. Events, control kinds and
heartbeats: in both directions (FULL_TRANSITIVE), as the log keeps old records and a cluster runs
old and new code at once. Outputs: new code reads all old records (BACKWARD_TRANSITIVE); the rules
version decides when a new one is written, after every reader knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

from dalsegno.schemas.avro_types import Array, AvroType, Map, Record, Union
from dalsegno.schemas.evolution import Conflict, conflicts
from dalsegno.schemas.kinds import KINDS, Family, family_of
from dalsegno.schemas.registry import Registry, registry


@dataclass(frozen=True, slots=True)
class Incompatible:
    """Version `reader` of a kind cannot read what version `writer` wrote."""

    kind: str
    reader: int
    writer: int
    conflicts: tuple[Conflict, ...]

    def __str__(self) -> str:
        details = "; ".join(f"{each.location}: {each.detail}" for each in self.conflicts)
        return f"{self.kind} v{self.reader} cannot read v{self.writer}: {details}"


@dataclass(frozen=True, slots=True)
class Undocumented:
    """A field or record without a word on what it is."""

    kind: str
    version: int
    path: str

    def __str__(self) -> str:
        return f"{self.kind} v{self.version}: {self.path} has no doc"


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked and what is wrong. `ok` when nothing is."""

    kinds: int
    versions: int
    pairs: int
    problems: tuple[Incompatible | Undocumented, ...]

    @property
    def ok(self) -> bool:
        """Whether the contract may be released."""
        return not self.problems


def check_all(schemas: Registry | None = None) -> Report:
    """Checks every version of every kind; of the contract's own registry if none is given."""
    schemas = schemas or registry()
    problems: list[Incompatible | Undocumented] = []
    pairs = 0
    for kind, versions in schemas.by_kind.items():
        both = kind not in KINDS or family_of(kind) is not Family.OUTPUT
        for reader, writer in permutations(versions, 2):
            if both or reader.version > writer.version:
                pairs += 1
                found = conflicts(reader.schema, writer.schema)
                if found:
                    problems.append(
                        Incompatible(kind, reader.version, writer.version, tuple(found))
                    )
        for version in versions:
            paths = _undocumented(version.schema, "", set())
            problems += (Undocumented(kind, version.version, path) for path in paths)
    return Report(len(schemas.by_kind), len(schemas.all()), pairs, tuple(problems))


def _undocumented(schema: AvroType, path: str, seen: set[int]) -> list[str]:
    if isinstance(schema, Array):
        return _undocumented(schema.items, path, seen)
    if isinstance(schema, Map):
        return _undocumented(schema.values, path, seen)
    if isinstance(schema, Union):
        return [found for each in schema.branches for found in _undocumented(each, path, seen)]
    if not isinstance(schema, Record) or id(schema) in seen:
        return []
    seen.add(id(schema))
    found = [] if schema.doc else [path or schema.name]
    for field in schema.fields:
        inner = f"{path}.{field.name}" if path else field.name
        found += [inner] if not field.doc else []
        found += _undocumented(field.type, inner, seen)
    return found
