"""Golden bytes: every schema version, written once, read for ever, and by other Avro libraries."""

import io
import json
from pathlib import Path
from typing import Any

import avro.io
import avro.schema
import fastavro
import msgspec
import pytest
from tests.contract import records

from dalsegno.schemas import codec, kinds
from dalsegno.schemas.registry import SchemaVersion, registry

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = registry().all()


def name(version: SchemaVersion) -> str:
    return f"{version.kind}-v{version.version}"


def golden(version: SchemaVersion) -> tuple[bytes, Any]:
    """The bytes, and the record that they are, from its JSON form."""
    folder = GOLDEN / version.kind
    value = (folder / f"v{version.version}.bin").read_bytes()
    text = (folder / f"v{version.version}.json").read_bytes()
    return value, msgspec.json.decode(text, type=kinds.KINDS[version.kind])


def test_every_version_has_its_golden_bytes_and_nothing_else_is_there() -> None:
    files = {str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*") if path.is_file()}
    stems = {f"{each.kind}/v{each.version}" for each in VERSIONS}
    assert files == {f"{stem}.bin" for stem in stems} | {f"{stem}.json" for stem in stems}


@pytest.mark.parametrize("version", VERSIONS, ids=name)
def test_golden_bytes_are_read_as_their_record(version: SchemaVersion) -> None:
    value, record = golden(version)
    assert codec.decode(value) == record
    assert value[2:10] == version.fingerprint


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_the_newest_version_is_written_as_its_golden_bytes(kind: str) -> None:
    value, record = golden(registry().newest(kind))
    assert codec.encode(record) == value


@pytest.mark.parametrize("version", VERSIONS, ids=name)
def test_apache_avro_reads_the_same_values(version: SchemaVersion) -> None:
    value, record = golden(version)
    schema = avro.schema.parse(version.text)
    body = io.BytesIO(value[codec.HEAD_BYTES :])
    read = avro.io.DatumReader(schema).read(avro.io.BinaryDecoder(body))
    assert body.read() == b""
    assert read == records.as_written(records.plain(record), version.schema)


@pytest.mark.parametrize("version", VERSIONS, ids=name)
def test_fastavro_reads_and_writes_the_same_bytes(version: SchemaVersion) -> None:
    value, record = golden(version)
    schema = fastavro.parse_schema(json.loads(version.text))
    body = value[codec.HEAD_BYTES :]
    plain = records.as_written(records.plain(record), version.schema)
    assert fastavro.schemaless_reader(io.BytesIO(body), schema, None) == plain
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, plain, strict=True)
    assert out.getvalue() == body
