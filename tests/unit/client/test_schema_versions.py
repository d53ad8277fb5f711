"""Contexts of other versions: upcasters, what cannot be read, and what `check` finds."""

from __future__ import annotations

import dataclasses
from typing import Any, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.fakes import attempt, handoff

from dalsegno.client import (
    BlockingContext,
    Context,
    ContextSchema,
    FieldRefused,
    Flow,
    Invalid,
    SchemaError,
    Severity,
    UpcastFailed,
    VersionMismatchError,
)
from dalsegno.schemas import values
from dalsegno.schemas.outputs import FieldVersion
from dalsegno.streams.client.blobs import Patience
from dalsegno.streams.client.context_versions import mismatch, read_fields, written_version
from dalsegno.streams.client.large import Large


class Holder(TypedDict):
    items: list[int]


class Seen(TypedDict):
    a: int
    b: NotRequired[str]


class Sum(TypedDict):
    cents: int


class Newest(TypedDict):
    amount: Sum
    customer: NotRequired[str]


class Order(TypedDict):
    amount: int
    customer: NotRequired[str]


def order() -> ContextSchema:
    """Version 4: euros became cents, cents became a map, and then a field went."""

    schema = ContextSchema(
        "order",
        Newest,
        version=4,
        examples={1: [{"amount": 5, "customer": "Ada"}], 2: [{"amount": 500}], 3: [{"old": 1}]},
    )

    @schema.upcast("amount", from_version=1)
    def cents(euros: int) -> int:
        return euros * 100

    @schema.upcast("amount", from_version=2)
    def named(amount: int) -> dict[str, int]:
        return {"cents": amount}

    schema.removed("old", from_version=3)
    return schema


def test_upcasters_are_chained_from_each_fields_own_version() -> None:
    schema = order()
    read = schema.read({"amount": 5, "customer": "Ada"}, {"amount": 1, "customer": 3})
    assert read == {"amount": {"cents": 500}, "customer": "Ada"}
    assert schema.read({"amount": 5}, {"amount": 2}) == {"amount": {"cents": 5}}
    assert schema.read({"amount": {"cents": 5}}, {"amount": 4}) == {"amount": {"cents": 5}}


def test_a_field_that_went_is_no_longer_there() -> None:
    assert order().read({"old": 1, "amount": 1}, {"old": 1, "amount": 1}) == {
        "amount": {"cents": 100}
    }
    with pytest.raises(FieldRefused, match="old: the schema has no such field"):
        order().read({"old": 1}, {"old": 4})


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(-1000, 1000))
def test_the_way_through_other_versions_does_not_matter(stops: list[int], euros: int) -> None:
    """Read by releases in between, or at once: the same."""
    held: object = euros
    version = 1
    for stop in sorted(stops):
        for number in range(version, stop):
            held = {1: lambda v: v * 100, 2: lambda v: {"cents": v}, 3: lambda v: v}[number](held)
        version = stop
    read = order().read({"amount": held}, {"amount": version})  # type: ignore[dict-item]
    assert read == {"amount": {"cents": euros * 100}}


def test_a_newer_field_is_a_version_mismatch() -> None:
    with pytest.raises(VersionMismatchError) as refusal:
        order().read({"amount": 1}, {"amount": 5}, "run-7")
    error = refusal.value
    assert (error.run_id, error.field, error.found, error.known) == ("run-7", "amount", 5, 4)
    assert str(error) == (
        "run 'run-7', field 'amount' is of schema version 5, this code is of 4: "
        "a newer release has written it"
    )


def test_a_gap_in_the_chain_is_a_version_mismatch() -> None:
    schema = ContextSchema("s", Order, version=3)
    schema.unchanged(from_version=2)
    assert schema.read({"amount": 1}, {"amount": 2}) == {"amount": 1}
    with pytest.raises(VersionMismatchError, match="no upcaster from 1 to 2"):
        schema.read({"amount": 1}, {"amount": 1}, "r")


def test_an_upcaster_cannot_change_what_others_see() -> None:
    schema = ContextSchema("s", Holder, version=2)
    kept: list[list[int]] = []

    @schema.upcast("items", from_version=1)
    def add(items: list[int]) -> list[int]:
        items.append(9)
        kept.append(items)
        return items

    given = {"items": [1]}
    first = schema.read(given, {"items": 1})  # type: ignore[arg-type]
    kept[0].append(7)
    assert given == {"items": [1]}
    assert first == {"items": [1, 9]}


@pytest.mark.parametrize(
    ("made", "error", "words"),
    [
        ((1, 2), UpcastFailed, "items: a tuple has no place"),
        ([1, {2}], UpcastFailed, "items[1]: a set has no place"),
        (["x"], FieldRefused, "items[0]: expected a whole number"),
    ],
)
def test_what_an_upcaster_gives_is_checked(
    made: object, error: type[Exception], words: str
) -> None:
    schema = ContextSchema("s", Holder, version=2)
    schema.upcast("items", from_version=1)(lambda _: made)
    with pytest.raises(error) as refusal:
        schema.read({"items": 1}, {"items": 1})
    assert words in str(refusal.value)


def test_an_upcaster_that_raises_is_named() -> None:
    schema = ContextSchema("s", Holder, version=2)
    schema.upcast("items", from_version=1)(lambda items: items["no"])
    with pytest.raises(UpcastFailed, match=r"upcaster of 'items' from version 1 to 2: raised"):
        schema.read({"items": [1]}, {"items": 1})


@pytest.mark.parametrize("version", [0, 2, 3, True, 1.5, "1"])
def test_an_upcaster_leads_on_from_an_older_version(version: int) -> None:
    schema = ContextSchema("s", Holder, version=2)
    with pytest.raises(SchemaError):
        schema.unchanged(from_version=version)


def test_a_field_has_one_upcaster_from_a_version() -> None:
    schema = ContextSchema("s", Holder, version=2)
    schema.upcast("items", from_version=1)(lambda items: items)
    with pytest.raises(SchemaError, match="two upcasters"):
        schema.removed("items", from_version=1)


def test_an_upcaster_of_a_field_that_the_schema_does_not_have_is_refused() -> None:
    schema = ContextSchema("s", Order, version=3)
    with pytest.raises(SchemaError, match="did you mean 'amount'") as refusal:
        schema.upcast("amuont", from_version=1)(int)
    assert (refusal.value.schema, refusal.value.path) == ("s", "amuont")
    with pytest.raises(SchemaError, match=r"zzz: .*\(it has: amount, customer\)"):
        schema.upcast("zzz", from_version=2)(int)
    assert schema.upcasts(1) is None, "what was refused leads nowhere"
    assert schema.upcasts(2) is None


def test_a_field_that_a_later_version_removed_may_have_had_upcasters_before() -> None:
    schema = ContextSchema("s", Order, version=4)
    with pytest.raises(SchemaError, match=r"say removed\('old', from_version=…\) first"):
        schema.upcast("old", from_version=1)(int)
    schema.removed("old", from_version=2)
    schema.upcast("old", from_version=1)(int)
    for version in (2, 3):
        with pytest.raises(SchemaError):
            schema.upcast("old", from_version=version)(int)
    schema.unchanged(from_version=3)
    assert schema.read({"old": "1", "amount": 5}, {"old": 1, "amount": 1}) == {"amount": 5}


def test_a_field_that_the_schema_has_is_not_what_its_last_version_removed() -> None:
    schema = ContextSchema("s", Order, version=3)
    with pytest.raises(SchemaError, match="amount: is not removed: version 3 of the schema has it"):
        schema.removed("amount", from_version=2)
    assert schema.upcasts(2) is None
    schema.removed("amount", from_version=1)
    schema.unchanged(from_version=2)
    assert schema.read({"amount": 5}, {"amount": 1}) == {}, "it came back in version 3"
    assert schema.read({"amount": 5}, {"amount": 3}) == {"amount": 5}


def inputs(**fields: object) -> bytes:
    return values.pack(fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("base", "newer", "field"),
    [(1, 0, ""), (4, 0, ""), (5, 0, "amount"), (4, 5, "amount"), (5, 4, ""), (5, 1, "")],
)
def test_a_handoff_is_given_back_for_the_fields_that_this_code_cannot_read(
    base: int, newer: int, field: str
) -> None:
    taken = handoff(
        inputs=inputs(amount=1),
        context_schema="order",
        context_schema_version=base,
        field_versions=(FieldVersion("amount", newer),) if newer else (),
    )
    found = mismatch(taken, order())
    assert (found.field if found else "") == field


def test_a_step_that_reads_nothing_newer_goes_on() -> None:
    taken = handoff(inputs=inputs(), context_schema="order", context_schema_version=9)
    assert mismatch(taken, order()) is None
    assert written_version(taken, order()) == 4


def test_code_without_a_schema_counts_as_the_first_version() -> None:
    first = handoff(context_schema="order")
    assert mismatch(first, None) is None
    assert written_version(first, None) == 1
    second = handoff(context_schema="order", context_schema_version=2)
    found = mismatch(second, None)
    assert found is not None
    assert (found.field, found.found, found.known) == ("a", 2, 1)


def test_older_code_without_a_schema_leaves_what_newer_code_wrote_into_a_run_without_one() -> None:
    plain = handoff()
    assert mismatch(plain, None) is None
    assert written_version(plain, None) == 1, "or its writes would pass for the newer version"
    newer = handoff(field_versions=(FieldVersion("a", 2),))
    found = mismatch(newer, None)
    assert found is not None
    assert (found.field, found.found, found.known) == ("a", 2, 1)
    assert found.detail == "newer code has written it, the code has none"


def test_a_run_from_before_the_schema_is_of_its_first_version() -> None:
    taken = handoff(inputs=inputs(amount=2))
    assert mismatch(taken, order()) is None
    assert read_fields(taken, taken.inputs, order()) == {"amount": {"cents": 200}}


def test_another_schema_is_a_mismatch() -> None:
    taken = handoff(inputs=inputs(amount=1), context_schema="refund", context_schema_version=4)
    found = mismatch(taken, order())
    assert found is not None
    assert "'refund'" in found.detail
    assert "'order'" in found.detail


def test_another_schema_is_a_mismatch_for_a_step_that_only_writes() -> None:
    taken = handoff(inputs=inputs(), context_schema="refund", context_schema_version=4)
    found = mismatch(taken, order())
    assert found is not None
    assert "'refund'" in found.detail


@pytest.mark.parametrize("kind", [Context, BlockingContext])
def test_a_body_sees_its_own_version(kind: type) -> None:
    held = attempt(
        inputs=inputs(a=5, b="x"),
        context_schema="s",
        field_versions=(FieldVersion("b", 2),),
    )
    schema = ContextSchema("s", Seen, version=2)
    schema.upcast("a", from_version=1)(lambda n: n * 100)
    held.step = with_schema(held.step, schema)
    context = kind(held, None, None) if kind is BlockingContext else kind(held, None)
    assert dict(context) == {"a": 500, "b": "x"}


def test_a_body_that_reads_what_upcasters_refuse_fails_as_invalid() -> None:
    held = attempt(inputs=inputs(a="five"), context_schema="s")
    schema = ContextSchema("s", Seen, version=2)
    schema.unchanged(from_version=1)
    held.step = with_schema(held.step, schema)
    with pytest.raises(Invalid, match="a: expected a whole number, not a text") as failure:
        Context(held, None)["a"]  # type: ignore[arg-type]
    assert failure.value.error_class == "FieldRefused"


@pytest.mark.parametrize("where", ["inputs", "wrote"])
def test_what_an_upcaster_says_of_a_field_that_the_flow_calls_secret_is_kept_quiet(
    where: str,
) -> None:
    fields = {"inputs": inputs(), where: inputs(a="4711-0815")}
    held = attempt(context_schema="s", undoes="u", undoes_completed=True, **fields)
    schema = ContextSchema("s", Seen, version=2)
    schema.upcast("a", from_version=1)(int)
    for secrets, told in ((frozenset[str](), True), (frozenset({"a"}), False)):
        held.step = dataclasses.replace(held.step, schema=schema, secrets=secrets)
        held.large = Large(None, 0, Patience(0.0), secrets)
        context = Context(held, None)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="upcaster of 'a' from version 1 to 2") as failure:
            len(context) if where == "inputs" else context.undo
        assert ("4711" in str(failure.value)) is told
        assert (failure.value.__cause__ is not None) is told
        assert failure.value.error_class == "UpcastFailed"


def with_schema(step: Any, schema: ContextSchema) -> Any:
    return dataclasses.replace(step, schema=schema)


def codes(schema: ContextSchema) -> list[tuple[Severity, str]]:
    flow = Flow("f", context_schema=schema)
    flow.step(name="s", reads=[], writes=[], depends_on=[])(lambda ctx: {})
    return [(each.severity, each.code) for each in flow.check() if "context" in each.message]


def test_check_points_out_a_version_without_a_way_from_the_one_before() -> None:
    schema = ContextSchema("s", Order, version=2)
    assert codes(schema) == [(Severity.ERROR, "no_upcaster")]
    schema.unchanged(from_version=1)
    assert codes(schema) == []


def test_check_asks_for_an_example_of_each_upcaster() -> None:
    schema = ContextSchema("s", Order, version=2)
    schema.upcast("amount", from_version=1)(lambda n: n * 100)
    assert codes(schema) == [(Severity.WARNING, "upcaster_without_example")]


def test_kept_examples_go_through_the_upcasters() -> None:
    schema = order()
    schema.examples[3] = []
    assert [code for _, code in codes(schema)] == ["upcaster_without_example"]
    schema.examples[3] = [{"old": 1}]
    assert codes(schema) == []
    schema.examples[4] = [{"amount": {"cents": "1"}}]
    assert codes(schema) == [(Severity.ERROR, "context_example")]


def test_an_upcaster_that_is_not_pure_is_found() -> None:
    drawn = iter(range(100))
    schema = ContextSchema("s", Order, version=2, examples={1: [{"amount": 1}]})
    schema.upcast("amount", from_version=1)(lambda n: n + next(drawn))
    (found,) = [each for each in _findings(schema) if each.code == "context_example"]
    assert "not pure" in found.message


def _findings(schema: ContextSchema) -> list[Any]:
    flow = Flow("f", context_schema=schema)
    flow.step(name="s", reads=[], writes=[])(lambda ctx: {})
    return flow.check()
