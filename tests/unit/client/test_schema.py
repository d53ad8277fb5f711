"""Context schemas: what fits, what is refused with its path, and how older contexts are read."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest

from dalsegno.client import (
    ContextSchema,
    FieldRefused,
    Flow,
    FlowError,
    SchemaError,
    Secret,
    ValueRefusedError,
)
from dalsegno.schemas.blob import Blob
from dalsegno.streams.client.writing import set_operations


class Grade(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Address(TypedDict):
    street: str
    zip: NotRequired[str]


class Account(msgspec.Struct):
    iban: Secret[str]
    balance: float = 0.0


@dataclass
class Person:
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
    address: Address
    tags: list[str]


class Node(msgspec.Struct):
    label: str
    children: list[Node] = []


class Card(msgspec.Struct, tag="card", tag_field="kind"):
    last: Annotated[str, msgspec.Meta(pattern="^[0-9]{4}$")]


class Cash(msgspec.Struct, tag="cash", tag_field="kind"):
    pass


class Loan(TypedDict):
    person: Person
    account: NotRequired[Account]
    score: NotRequired[Annotated[int, msgspec.Meta(ge=0, le=100)]]
    rate: NotRequired[float]
    grade: NotRequired[Grade]
    stage: NotRequired[Literal["new", "old", 3]]
    decided: NotRequired[datetime | None]
    scan: NotRequired[bytes]
    notes: NotRequired[dict[str, list[int | str]]]
    tree: NotRequired[Node]
    paid: NotRequired[Card | Cash]
    free: NotRequired[Any]
    open: NotRequired[dict[str, object]]
    ready: NotRequired[bool]


LOAN = ContextSchema("loan", Loan)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
PERSON = {"name": "Ada", "address": {"street": "x"}, "tags": ["a"]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("person", PERSON),
        ("person", {**PERSON, "address": {"street": "x", "zip": "1"}}),
        ("account", {"iban": "DE1"}),
        ("account", {"iban": "DE1", "balance": 3}),
        ("score", 100),
        ("rate", 1),
        ("rate", float("nan")),
        ("grade", "good"),
        ("stage", 3),
        ("decided", NOW),
        ("decided", None),
        ("scan", b"\x00"),
        ("notes", {"a": [1, "x"], "b": []}),
        ("tree", {"label": "a", "children": [{"label": "b", "children": []}]}),
        ("paid", {"kind": "card", "last": "1234"}),
        ("paid", {"kind": "cash"}),
        ("free", {"what": [None, 1.5, {"ever": b""}]}),
        ("open", {"what": [None]}),
        ("scan", Blob.of(b"x")),
        ("person", {**PERSON, "tags": Blob.of(b"x")}),
    ],
)
def test_what_fits_is_taken(field: str, value: object) -> None:
    LOAN.check_value(field, value)


@pytest.mark.parametrize(
    ("field", "value", "path", "detail"),
    [
        ("persn", 1, "persn", "no such field"),
        ("person", {**PERSON, "age": 3}, "person.age", "no such field (it has: name, address"),
        ("person", {**PERSON, "address": {"zip": "1"}}, "person.address.street", "missing"),
        ("person", {**PERSON, "address": {"street": "x", "st": 1}}, "person.address.st", "no such"),
        ("person", {**PERSON, "tags": ["a", 1]}, "person.tags[1]", "expected a text"),
        ("person", {**PERSON, "name": ""}, "person.name", "length >= 1"),
        ("person", {**PERSON, "tags": ("a",)}, "person.tags", "expected a list, not a tuple"),
        ("person", [PERSON], "person", "expected a Person, not a list"),
        ("score", 101, "score", "<= 100"),
        ("score", True, "score", "expected a whole number, not a boolean"),
        ("score", 1.0, "score", "expected a whole number, not a number"),
        ("score", "1", "score", "expected a whole number, not a text"),
        ("score", None, "score", "not null"),
        ("rate", True, "rate", "expected a number, not a boolean"),
        ("grade", "fair", "grade", "'good' or 'bad'"),
        ("grade", Grade.GOOD, "grade", "expected"),
        ("stage", True, "stage", "expected"),
        ("stage", 3.0, "stage", "expected"),
        ("decided", "2026-01-02T00:00:00Z", "decided", "expected a time or null, not a text"),
        ("scan", "aGk=", "scan", "expected bytes, not a text"),
        ("notes", {"a": [1, b""]}, "notes.a[1]", "expected a whole number or a text"),
        ("notes", {1: []}, "notes.1", "expected a text"),
        ("tree", {"label": "a", "children": [{"lable": "b"}]}, "tree.children[0].lable", "no such"),
        ("paid", {"kind": "card", "last": "12"}, "paid.last", "regex"),
        ("paid", {"kind": "gold"}, "paid", "expected a Card or a Cash"),
        ("ready", 1, "ready", "expected a boolean"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(
    field: str, value: object, path: str, detail: str
) -> None:
    with pytest.raises(FieldRefused) as refusal:
        LOAN.check_value(field, value)
    assert refusal.value.path == path
    assert detail in refusal.value.detail
    assert (refusal.value.schema, refusal.value.version) == ("loan", 1)


def test_a_first_context_has_every_required_field() -> None:
    LOAN.check_start({"person": PERSON})
    with pytest.raises(FieldRefused, match="person: is required and missing"):
        LOAN.check_start({"score": 1})
    with pytest.raises(FieldRefused, match="extra: the schema has no such field"):
        LOAN.check_start({"person": PERSON, "extra": 1})


class Tuples(TypedDict):
    inner: dict[str, tuple[int, ...]]


class Money(TypedDict):
    amount: Decimal


class Spans(TypedDict):
    span: list[timedelta]


class Keys(TypedDict):
    by_number: dict[int, str]


class Packed(msgspec.Struct, array_like=True):
    a: int


class Holds(TypedDict):
    packed: Packed


@pytest.mark.parametrize(
    ("shape", "path"),
    [
        (Tuples, "inner.*"), (Money, "amount"), (Spans, "span[]"), (Keys, "by_number"),
        (Holds, "packed"), (int, ""), (list[str], ""),
    ],
)  # fmt: skip
def test_types_that_no_context_holds_are_refused_at_the_declaration(shape: type, path: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        ContextSchema("s", shape)
    assert refusal.value.path == path


@pytest.mark.parametrize("version", [0, -1, True, 2**31, 1.5, "2"])
def test_a_version_is_a_number_from_1(version: int) -> None:
    with pytest.raises(SchemaError):
        ContextSchema("s", Loan, version=version)


class Ring(msgspec.Struct):
    link: Link | None = None
    key: Secret[str] = ""


class Link(msgspec.Struct):
    ring: Ring | None = None


class Rings(TypedDict):
    first: Link
    plain: str


def test_secrets_are_the_fields_that_hold_one_however_deep() -> None:
    assert LOAN.secrets == ("account",)
    assert ContextSchema("s", Rings).secrets == ("first",), "found through a type that is a ring"


def test_a_flow_masks_what_its_schema_marks() -> None:
    flow = Flow("f", context_schema=LOAN, secrets=["person"])
    flow.step(name="s", reads=["person"], writes=["account"])(lambda ctx: {})
    assert flow.plan().secrets == ("person", "account")


@pytest.mark.parametrize("option", ["reads", "writes", "may_write"])
def test_a_step_names_fields_that_the_schema_has(option: str) -> None:
    flow = Flow("f", context_schema=LOAN)
    with pytest.raises(FlowError, match="step 's': names the field 'scor'"):
        flow.step(name="s", **{option: ["scor"]})(lambda ctx: {})  # type: ignore[arg-type]


def test_secrets_and_merges_name_fields_that_the_schema_has() -> None:
    for options in ({"secrets": ["x"]}, {"merges": {"x": "max"}}, {"fields": {"x": "text"}}):
        flow = Flow("f", context_schema=LOAN, **options)  # type: ignore[arg-type]
        flow.step(name="s", reads=["person"], writes=["score"])(lambda ctx: {})
        with pytest.raises(FlowError, match="names the field 'x'"):
            flow.plan()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"n": 2**64}, "n"), ({"d": {"x": Decimal("0.1")}}, "d.x"), ({"s": [{1, 2}]}, "s[0]"),
        ({"t": [1, (1, 2)]}, "t[1]"), ({"k": {1: "a"}}, "k"),
        ({"u": ["\ud800"]}, "u[0]"), ({"z": {"at": datetime(2026, 1, 1)}}, "z.at"),  # noqa: DTZ001
    ],
)  # fmt: skip
def test_a_value_that_no_context_holds_is_refused_at_the_write_with_its_path(
    fields: dict[str, object], path: str
) -> None:
    with pytest.raises(ValueRefusedError) as refusal:
        set_operations(fields, None)
    assert refusal.value.path == path


def test_a_write_that_the_schema_refuses_is_not_sent() -> None:
    with pytest.raises(FieldRefused) as refusal:
        set_operations({"person": {**PERSON, "tags": [1]}}, LOAN)
    assert refusal.value.path == "person.tags[0]"
