"""The schema files and our classes say the same, field by field."""

import json
import types
import typing
from enum import StrEnum
from pathlib import Path

import msgspec
import pytest
from tests.contract import records

from dalsegno.schemas import kinds
from dalsegno.schemas import registry as registry_module
from dalsegno.schemas.avro_types import (
    Array,
    AvroType,
    Enumeration,
    Primitive,
    Record,
    Union,
    parse,
)
from dalsegno.schemas.check import Incompatible, Undocumented, check_all
from dalsegno.schemas.errors import SchemaFileError
from dalsegno.schemas.registry import INDEX, SchemaVersion, build, index_text, load, registry

PYTHON = {"string": str, "bytes": bytes, "boolean": bool, "int": int, "long": int}


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_the_newest_file_describes_the_class(kind: str) -> None:
    agree(registry().newest(kind).schema, kinds.KINDS[kind])


def agree(schema: AvroType, cls: typing.Any) -> None:
    """Assert that a schema and a Python type are the same in names, types, order and defaults."""
    if isinstance(schema, Primitive):
        assert PYTHON[schema.name] is cls
    elif isinstance(schema, Array):
        assert typing.get_origin(cls) is tuple
        assert typing.get_args(cls)[1:] == (Ellipsis,)
        agree(schema.items, typing.get_args(cls)[0])
    elif isinstance(schema, Union):
        assert typing.get_origin(cls) in {typing.Union, types.UnionType}
        inner, none = typing.get_args(cls)
        assert none is type(None)
        assert schema.branches[0] == Primitive("null")
        agree(schema.branches[1], inner)
    elif isinstance(schema, Enumeration):
        assert issubclass(cls, StrEnum)
        assert schema.symbols == tuple(member.value for member in cls)
        assert schema.name == f"dalsegno.{cls.__name__}"
    else:
        assert isinstance(schema, Record)
        agree_record(schema, cls)


def agree_record(schema: Record, cls: type[msgspec.Struct]) -> None:
    assert schema.name == f"dalsegno.{cls.__name__}"
    fields = msgspec.structs.fields(cls)
    assert sorted(field.name for field in schema.fields) == sorted(each.name for each in fields)
    by_name = {field.name: field for field in schema.fields}
    for each in fields:
        field = by_name[each.name]
        agree(field.type, each.type)
        assert field.has_default == (not each.required), each.name
        if not each.required:
            made = each.default if each.default is not msgspec.NODEFAULT else each.default_factory()
            assert field.default == as_json(made), each.name
        assert field.doc.endswith((".", "?")), f"{schema.name}.{field.name}: say what it is"


def as_json(value: object) -> object:
    plain = records.plain(value)
    return plain.decode("latin-1") if isinstance(plain, bytes) else plain


def test_times_say_their_unit() -> None:
    for version in registry().all():
        for field in version.schema.fields:
            if "milliseconds" in field.doc.lower():
                assert field.name.endswith("_ms"), f"{version.kind}.{field.name}"


def test_every_kind_has_files_and_no_two_share_a_fingerprint() -> None:
    found = registry()
    assert set(found.by_kind) == set(kinds.KINDS)
    assert len(found.by_fingerprint) == len(found.all())
    assert len(kinds.KINDS) == 39


def test_the_index_of_fingerprints_is_that_of_the_files() -> None:
    """Else every process computes them at its start."""
    path = Path(registry_module.__file__).parent / "avro" / INDEX
    assert path.read_text() == index_text(), "write registry.index_text() to it"


def test_a_text_that_the_index_does_not_know_is_computed() -> None:
    known = registry().newest("Answer")
    other = load("Answer", 1, known.text, b"\x00" * 8)
    assert other.fingerprint != known.fingerprint
    assert build({("Answer", 1): registry().by_kind["Answer"][0].text}).by_fingerprint.keys() == {
        registry().by_kind["Answer"][0].fingerprint
    }


def test_the_contract_passes_its_own_check() -> None:
    report = check_all()
    assert report.ok, "\n".join(str(problem) for problem in report.problems)
    assert report.kinds == len(kinds.KINDS)


def text(kind: str, *fields: dict[str, object], doc: str = "Text.") -> str:
    head = {"type": "record", "name": kind, "namespace": "dalsegno", "doc": doc}
    return json.dumps({**head, "fields": list(fields)})


A = {"name": "a", "type": "string", "doc": "A."}
B = {"name": "b", "type": "long", "doc": "B."}
B_DEFAULT = {**B, "default": 0}


@pytest.mark.parametrize("kind", ["StepReleased", "ClockTick", "Hello"])
def test_events_must_be_compatible_in_both_directions_and_over_all_versions(kind: str) -> None:
    good = build({(kind, 1): text(kind, A), (kind, 2): text(kind, A, B_DEFAULT)})
    assert check_all(good).ok
    bad = build(
        {
            (kind, 1): text(kind, A),
            (kind, 2): text(kind, A, B_DEFAULT),
            (kind, 3): text(kind, B),
        }
    )
    problems = {
        (each.reader, each.writer)
        for each in check_all(bad).problems
        if isinstance(each, Incompatible)
    }
    assert problems == {(1, 3), (2, 3), (3, 1)}


def test_outputs_need_new_readers_only() -> None:
    files = {("Answer", 1): text("Answer", A), ("Answer", 2): text("Answer", B_DEFAULT)}
    assert check_all(build(files)).ok
    back = {("Answer", 1): text("Answer", A), ("Answer", 2): text("Answer", A, B)}
    assert [str(each) for each in check_all(build(back)).problems] == [
        "Answer v2 cannot read v1: /fields/1: field 'b' is not written and has no default"
    ]


def test_a_field_without_documentation_is_a_problem() -> None:
    files = {("Answer", 1): text("Answer", {"name": "a", "type": "string"})}
    assert check_all(build(files)).problems == (Undocumented("Answer", 1, "a"),)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({("Answer", 2): text("Answer", A)}, "version 2 without version 1"),
        ({("Answer", 1): text("Other", A)}, r"record named dalsegno\.Answer"),
        (
            {("Answer", 1): text("Answer", A), ("Answer", 2): text("Answer", A, doc="New.")},
            "same fingerprint",
        ),
        ({("Answer", 1): "{"}, "not JSON"),
        ({("Answer", 1): text("Answer", {"name": "a", "type": "strnig"})}, "strnig"),
        ({("Answer", 1): '{"type": "record"}'}, "name"),
        ({("Answer", 1): "7"}, "not a schema"),
    ],
)
def test_a_broken_file_stops_the_build(files: dict[tuple[str, int], str], message: str) -> None:
    with pytest.raises(SchemaFileError, match=message):
        build(files)


def test_recursive_types_compare_and_parse() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"]}, {"name": "v", "type": "int"}],
    }
    schema = parse(json.dumps(node))
    assert isinstance(schema, Record)
    next_type = schema.fields[0].type
    assert isinstance(next_type, Union)
    assert next_type.branches[1] is schema


def test_versions_know_their_text() -> None:
    version = registry().newest("StepReleased")
    assert isinstance(version, SchemaVersion)
    assert json.loads(version.text)["name"] == "StepReleased"
