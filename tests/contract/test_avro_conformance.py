"""Avro's own cases: canonical forms, fingerprints, verdicts, a single-object message."""

import json
import re
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
import zstandard
from fastavro.read import SchemaResolutionError
from fastavro.schema import to_parsing_canonical_form

from dalsegno.schemas import avro_types
from dalsegno.schemas.compile_decoder import compile_decoder
from dalsegno.schemas.compile_encoder import compile_encoder
from dalsegno.schemas.evolution import conflicts
from dalsegno.schemas.registry import canonical_fingerprint

AVRO = Path(__file__).resolve().parents[3] / "shared/data/avro"
SHARE = AVRO / "apache_avro/share/test"

pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not AVRO.is_dir(), reason=f"Avro's cases are not at {AVRO}"),
]


def schema_tests() -> list[tuple[object, str, int]]:
    """(input, canonical form, fingerprint) of each case in schema-tests.txt."""
    path = SHARE / "data/schema-tests.txt"
    if not path.exists():
        return []
    text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("//"))
    found = re.findall(
        r"<<INPUT\s*(.*?)\s*(?:\nINPUT)?\n<<canonical (.*?)\n<<fingerprint (-?\d+)", text, re.DOTALL
    )
    return [(json.loads(given), canonical, int(number)) for given, canonical, number in found]


def pairs() -> list[dict[str, object]]:
    path = AVRO / "avro_compat_pairs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_all_cases_are_found() -> None:
    assert len(schema_tests()) == 17
    assert len(pairs()) == 79


@pytest.mark.parametrize("case", schema_tests(), ids=lambda case: case[1][:40])
def test_canonical_forms_and_fingerprints(case: tuple[object, str, int]) -> None:
    given, canonical, fingerprint = case
    assert to_parsing_canonical_form(given) == canonical
    assert canonical_fingerprint(given) == fingerprint.to_bytes(8, "little", signed=True)
    avro_types.parse_json(given)


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: json.dumps(pair["reader"])[:40])
def test_compatibility_verdicts(pair: dict[str, list[str]]) -> None:
    reader = avro_types.parse_json(pair["reader"])
    writer = avro_types.parse_json(pair["writer"])
    found = conflicts(reader, writer)
    assert ("incompatible" if found else "compatible") == pair["result"]
    assert {str(each.type) for each in found} <= set(pair["incompatibilities"])
    assert {each.location for each in found} <= set(pair["locations"])


class TestMessage(msgspec.Struct, frozen=True):
    """The record of Avro's single-object message."""

    __test__ = False

    id: int
    name: str
    tags: tuple[str, ...]


def test_the_single_object_message_of_the_java_implementation() -> None:
    folder = SHARE / "data/messageV1"
    text = (folder / "test_schema.avsc").read_text()
    message = (folder / "test_message.bin").read_bytes()
    schema = avro_types.parse(text)
    assert isinstance(schema, avro_types.Record)
    head = b"\xc3\x01" + canonical_fingerprint(json.loads(text))
    assert message.startswith(head)
    classes = {"TestMessage": TestMessage}
    read, end = compile_decoder(schema, schema, classes)(message, len(head))
    assert end == len(message)
    assert (read.id, read.name, read.tags) == (42, "Bill", ("dog_lover", "cat_hater"))
    again = compile_encoder(schema, classes, head)(read)
    assert compile_decoder(schema, schema, classes)(again, len(head)) == (read, len(again))


class Weather(msgspec.Struct, frozen=True):
    """The record of Avro's weather files."""

    station: str
    time: int
    temp: int


class Simple(msgspec.Struct, frozen=True):
    """The record of Avro's folder of shared cases."""

    text: str


CLASSES = {"Weather": Weather, "simple": Simple}
DATA_FILES = (
    "weather.avro",
    "weather-sorted.avro",
    "weather-deflate.avro",
    "weather-snappy.avro",
    "schemas/simple/data.avro",
)


def test_every_data_file_of_avro_is_among_them() -> None:
    found = (path.relative_to(SHARE / "data") for path in SHARE.glob("data/**/*.avro"))
    assert sorted(map(str, found)) == sorted(DATA_FILES)


@pytest.mark.parametrize("name", DATA_FILES)
def test_the_data_files_of_avro_are_read_and_written_again_byte_for_byte(name: str) -> None:
    """The blocks of a container, as another implementation unpacks them."""
    with (SHARE / "data" / name).open("rb") as file:
        blocks = fastavro.block_reader(file)
        schema = avro_types.parse_json(blocks.writer_schema)
        bodies = [block.bytes_.getvalue() for block in blocks]
    with (SHARE / "data" / name).open("rb") as file:
        expected = list(fastavro.reader(file))
    assert isinstance(schema, avro_types.Record)
    decode = compile_decoder(schema, schema, CLASSES)
    encode = compile_encoder(schema, CLASSES, b"")
    read = []
    for body in bodies:
        at = 0
        while at < len(body):
            record, end = decode(body, at)
            assert encode(record) == body[at:end]
            read.append(msgspec.to_builtins(record))
            at = end
    assert read == expected
    assert read


def test_the_weather_is_what_its_text_says() -> None:
    lines = (SHARE / "data/weather.json").read_text().splitlines()
    with (SHARE / "data/weather.avro").open("rb") as file:
        assert list(fastavro.reader(file)) == [json.loads(line) for line in lines]


def test_the_schema_beside_a_data_file_is_the_one_that_wrote_it() -> None:
    folder = SHARE / "data/schemas/simple"
    given = json.loads((folder / "schema.json").read_text())
    with (folder / "data.avro").open("rb") as file:
        written = json.loads(fastavro.reader(file).metadata["avro.schema"])
    assert given == written


@pytest.mark.parametrize("path", sorted(SHARE.glob("**/*.avpr")), ids=lambda path: path.name)
def test_the_types_of_every_protocol_of_avro_are_understood(path: Path) -> None:
    protocol = json.loads(path.read_text())
    space = protocol.get("namespace", "")
    types = [{"namespace": space, **each} for each in protocol["types"]]
    schema = avro_types.parse_json(types)
    assert isinstance(schema, avro_types.Union)
    assert len(schema.branches) == len(types)
    assert conflicts(schema, schema) == []


def zst_lines(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file).read().decode()
    return [json.loads(line) for line in text.splitlines()]


def test_the_verdicts_on_real_schema_families() -> None:
    """RADAR's histories, each adjacent pair, both ways."""
    families = {
        each["family"]: each["versions"] for each in zst_lines(AVRO / "radar_families.jsonl.zst")
    }
    judged = 0
    for verdict in zst_lines(AVRO / "radar_verdicts.jsonl.zst"):
        versions = families[verdict["family"]]
        reader = avro_types.parse_json(versions[verdict["reader"]]["schema"])
        writer = avro_types.parse_json(versions[verdict["writer"]]["schema"])
        found = conflicts(reader, writer)
        assert ("incompatible" if found else "compatible") == verdict["avro_python"], verdict
        # Apache's checker also lists branches of a union that did not fit beside one that did.
        assert {str(each.type) for each in found} <= set(verdict["why"]), verdict
        judged += 1
    assert judged == 336


def packets() -> dict[str, Path]:
    """One file of real alerts for each version of the schema that wrote it."""
    folders = (AVRO / "lsst_alert_packet").glob("*/sample_data/fakeAlert.avro")
    return {path.parents[1].name: path for path in folders}


NOT_IN_THE_PACKET = ("7_0", "7_1")
"""Two fields without a default came into a record that this packet happens to have none of: no
reader fails on it, and the rules, which judge all that may be written, rightly do.
"""


def lsst_verdicts() -> list[dict[str, str]]:
    path = AVRO / "lsst_verdicts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize(
    "verdict", lsst_verdicts(), ids=lambda each: f"{each['writer']}-by-{each['reader']}"
)
def test_the_verdicts_on_versions_of_a_survey_fit_its_packets(verdict: dict[str, str]) -> None:
    """What the rules call readable is read from real packets by another implementation, and what
    they do not is refused there, for the field that they name.
    """
    found = packets()
    with found[verdict["reader"]].open("rb") as file:
        wanted = json.loads(fastavro.reader(file).metadata["avro.schema"])
    with found[verdict["writer"]].open("rb") as file:
        read = fastavro.reader(file, reader_schema=wanted)
        written = json.loads(read.metadata["avro.schema"])
        refusal = ""
        try:
            assert list(read)
        except SchemaResolutionError as error:
            refusal = str(error)
    against = conflicts(avro_types.parse_json(wanted), avro_types.parse_json(written))
    assert bool(refusal) == verdict["fastavro"].startswith("fails")
    if (verdict["writer"], verdict["reader"]) == NOT_IN_THE_PACKET:
        assert [str(each.type) for each in against] == ["missing_union_branch"]
        return
    assert bool(against) == bool(refusal)
    if refusal:
        field = refusal.removeprefix("No default value for field ").partition(" in ")[0]
        assert any(repr(field) in each.detail for each in against), (field, against)


def test_all_packets_and_verdicts_of_the_survey_are_there() -> None:
    assert len(packets()) == 7
    assert len(lsst_verdicts()) == 12


@pytest.mark.parametrize("path", sorted(SHARE.glob("**/*.avsc")), ids=lambda path: path.name)
def test_every_schema_file_of_avro_is_understood(path: Path) -> None:
    schema = avro_types.parse(path.read_text())
    assert conflicts(schema, schema) == []
