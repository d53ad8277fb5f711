"""What a body may read, and that what it reads is its own."""

from __future__ import annotations

from typing import TypedDict, cast

import pytest
from tests.unit.client.fakes import FakeGate, attempt

from dalsegno.client import Context, Invalid, MissingInfo, UndeclaredRead
from dalsegno.streams.client.effects import Effects


def context() -> Context:
    held = attempt()
    return Context(held, Effects(held, FakeGate()))


def test_reads_what_is_declared() -> None:
    ctx = context()
    assert ctx["a"] == {"list": [1]}
    assert "a" in ctx
    assert list(ctx) == ["a"]
    assert len(ctx) == 1


def test_an_undeclared_read_is_a_typed_error_that_names_what_is_declared() -> None:
    with pytest.raises(UndeclaredRead, match=r"step 's' reads 'secret'.*reads: a, missing"):
        context()["secret"]
    with pytest.raises(UndeclaredRead):
        context().get("secret")


def test_a_declared_field_that_is_not_there_is_never_none() -> None:
    with pytest.raises(MissingInfo, match="no field 'missing'"):
        context()["missing"]
    with pytest.raises(MissingInfo):
        context().get("missing")
    assert "missing" not in context()


def test_a_value_changed_in_place_changes_nothing_but_the_copy() -> None:
    ctx = context()
    mine = cast("dict[str, list[int]]", ctx["a"])
    mine["list"].append(2)
    mine["new"] = []
    assert ctx["a"] == {"list": [1]}
    with pytest.raises(TypeError):
        ctx["a"] = 1  # type: ignore[index]


def test_reads_as_a_type() -> None:
    class Input(TypedDict):
        list: list[int]

    assert context().read("a", Input)["list"] == [1]
    with pytest.raises(Invalid, match="'a' is not a int"):
        context().read("a", int)


def test_says_who_it_is() -> None:
    ctx = context()
    assert (ctx.run_id, ctx.step, ctx.epoch, ctx.key) == ("r", "s", 1, "1:r/s")
    assert not ctx.cancelled
    assert ctx.progress() == 1
    assert ctx.progress() == 2
