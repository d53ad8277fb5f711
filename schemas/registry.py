"""The schema files of the contract: every version of every kind, and their fingerprints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from dalsegno.schemas.avro_types import Record, parse
from dalsegno.schemas.errors import SchemaFileError
from dalsegno.schemas.kinds import KINDS


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One schema file. `fingerprint`: CRC-64-AVRO of its canonical form, 8 bytes as on the wire."""

    kind: str
    version: int
    text: str
    schema: Record
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Registry:
    """All schema versions that this code knows."""

    by_kind: Mapping[str, tuple[SchemaVersion, ...]]
    by_fingerprint: Mapping[bytes, SchemaVersion]

    def newest(self, kind: str) -> SchemaVersion:
        """The version that this code writes. Raises `KeyError` for a name that is not a kind."""
        return self.by_kind[kind][-1]

    def all(self) -> tuple[SchemaVersion, ...]:
        """Every version of every kind, in order."""
        return tuple(version for versions in self.by_kind.values() for version in versions)


INDEX: Final = "fingerprints.txt"
"""Beside the schema files: digest of a file's text, and its fingerprint, which is dear to compute
at every start. A text that the index does not know is computed; `index_text` writes it anew.
"""


def canonical_fingerprint(schema: object) -> bytes:
    """CRC-64-AVRO of a schema's parsing canonical form, little-endian. `schema`: decoded JSON."""
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))  # pyright: ignore[reportArgumentType]


def build(
    files: Mapping[tuple[str, int], str], known: Mapping[str, bytes] | None = None
) -> Registry:
    """A registry of schema texts by (kind, version), versions from 1 without a gap.

    `known`: fingerprints by the digest of a schema's text.

    Raises `SchemaFileError` for a gap, a name that is not its kind's, or two equal fingerprints.
    """
    by_kind: dict[str, list[SchemaVersion]] = {}
    by_fingerprint: dict[bytes, SchemaVersion] = {}
    for (kind, number), text in sorted(files.items()):
        versions = by_kind.setdefault(kind, [])
        if number != len(versions) + 1:
            raise SchemaFileError(f"{kind}: version {number} without version {len(versions) + 1}")
        version = load(kind, number, text, (known or {}).get(_digest(text)))
        other = by_fingerprint.setdefault(version.fingerprint, version)
        if other is not version:
            raise SchemaFileError(
                f"{kind} v{number} and {other.kind} v{other.version} have the same fingerprint: "
                "documentation and defaults do not make a version"
            )
        versions.append(version)
    return Registry({kind: tuple(each) for kind, each in by_kind.items()}, by_fingerprint)


def load(kind: str, number: int, text: str, fingerprint: bytes | None = None) -> SchemaVersion:
    """One schema text. Raises `SchemaFileError` when it is not a record named `dalsegno.<kind>`."""
    schema = parse(text)
    if not isinstance(schema, Record) or schema.name != f"dalsegno.{kind}":
        raise SchemaFileError(f"{kind} v{number}: expected a record named dalsegno.{kind}")
    if fingerprint is None:
        fingerprint = canonical_fingerprint(json.loads(text))
    return SchemaVersion(kind, number, text, schema, fingerprint)


@cache
def registry() -> Registry:
    """The contract's registry, read once from the package's own files."""
    root = _root()
    lines = (line.split() for line in (root / INDEX).read_text("utf-8").splitlines())
    return build(_files(root), {digest: bytes.fromhex(crc) for digest, crc, _ in lines})


def index_text() -> str:
    """The index of the package's schema files, computed from them alone."""
    found = build(_files(_root())).all()
    return "".join(
        f"{_digest(each.text)} {each.fingerprint.hex()} {each.kind}/v{each.version}\n"
        for each in found
    )


def _root() -> Path:
    # Not `importlib.resources`, which brings in much that a worker needs for nothing else.
    return Path(__file__).parent / "avro"


def _files(root: Path) -> dict[tuple[str, int], str]:
    return {
        (kind, int(file.name[1:-5])): file.read_text("utf-8")
        for kind in KINDS
        for file in (root / kind).iterdir()
        if file.name.endswith(".avsc")
    }


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
