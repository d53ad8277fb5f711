"""Compensations: what they see, and that nothing is taken back twice or without reason."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.client.fakes import FakeGate, attempt

from dalsegno.client import NOT_DONE, BlockingContext, Context, DoneEffect, Permanent, StepStopped
from dalsegno.schemas import values
from dalsegno.schemas.events import EffectConfirmed, EffectIntended
from dalsegno.schemas.outputs import EffectStatus, JournalEntry, UndoEntry
from dalsegno.streams.client.effects import Effects
from dalsegno.streams.core.effects import effect_key, recovery_key

PAID = UndoEntry(
    effect="pay",
    occurrence=1,
    key="k1",
    status=EffectStatus.CONFIRMED,
    epoch=3,
    result=values.pack({"id": 7}),
    undo_input=values.pack([1, 2]),
)
MAYBE = UndoEntry(effect="pay", occurrence=0, key="k0", status=EffectStatus.UNKNOWN, epoch=2)


def context(gate: FakeGate, *effects: JournalEntry, **handoff: object) -> Context:
    """Of a compensation that takes back step `pay`."""
    given = {"undoes": "pay", "undoes_completed": True, "undo": (MAYBE, PAID), **handoff}
    held = attempt(effects=effects, **given)
    return Context(held, Effects(held, gate))


def test_a_compensation_sees_what_was_done_and_what_may_have_been() -> None:
    undo = context(FakeGate(), wrote=values.pack({"receipt": "r"})).undo
    assert (undo.step, undo.completed, undo.wrote) == ("pay", True, {"receipt": "r"})
    assert list(undo) == [
        DoneEffect("pay", 0, "k0", 2, done=False),
        DoneEffect("pay", 1, "k1", 3, done=True, result={"id": 7}, input=[1, 2]),
    ]
    assert [effect.key for effect in reversed(undo)] == ["k1", "k0"]
    assert undo.named("other") == ()


def test_of_a_step_that_did_not_complete_nothing_was_written() -> None:
    undo = context(FakeGate(), undoes_completed=False, wrote=values.pack({"old": 1})).undo
    assert undo.wrote == {}


def test_another_step_takes_nothing_back() -> None:
    held = attempt()
    with pytest.raises(Permanent, match="no compensation"):
        _ = Context(held, Effects(held, FakeGate())).undo


async def test_taking_back_is_an_effect_under_a_key_of_its_own() -> None:
    gate = FakeGate()
    ctx = context(gate)
    effect = ctx.undo[1]
    seen: list[tuple[str, str]] = []

    async def refund(of: str, key: str) -> str:
        seen.append((of, key))
        return "refunded"

    assert await ctx.take_back(effect, refund, effect.key) == "refunded"
    key = effect_key(recovery_key("r", "s"), "undo:pay", 1)
    assert seen == [("k1", key)]
    intended, confirmed = gate.reported
    assert isinstance(intended, EffectIntended)
    assert isinstance(confirmed, EffectConfirmed)
    assert (intended.effect, intended.occurrence, intended.key) == ("undo:pay", 1, key)


async def test_its_place_is_that_of_what_it_takes_back_in_whatever_order() -> None:
    def keys(order: int) -> list[str]:
        ctx = context(FakeGate())
        undo = list(ctx.undo)[::order]
        return sorted(ctx._effects.taking_back(e, print, (), {}).info.key for e in undo)

    assert keys(1) == keys(-1)
    assert len(set(keys(1))) == 2


async def test_what_an_earlier_attempt_took_back_is_not_taken_back_again() -> None:
    gate = FakeGate()
    done = JournalEntry(
        effect="undo:pay",
        occurrence=1,
        key="u1",
        status=EffectStatus.CONFIRMED,
        epoch=1,
        result=values.pack("refunded"),
    )
    ctx = context(gate, done)
    again = await ctx.take_back(ctx.undo[1], lambda: pytest.fail("taken back twice"))
    assert again == "refunded"
    assert gate.reported == []


@pytest.mark.parametrize("found", [NOT_DONE, {"id": 1}])
async def test_what_may_have_been_done_is_looked_up_first_where_there_is_a_check(
    found: object,
) -> None:
    gate = FakeGate()
    ctx = context(gate)
    acted: list[str] = []

    async def look(of: str) -> object:
        return found

    await ctx.take_back(ctx.undo[0], acted.append, "k0", check=look)
    assert acted == ([] if found is NOT_DONE else ["k0"])
    assert bool(gate.reported) is bool(acted)


async def test_without_a_check_it_is_taken_back_under_its_key() -> None:
    acted: list[str] = []
    ctx = context(FakeGate())
    await ctx.take_back(ctx.undo[0], acted.append, "k0")
    assert acted == ["k0"]


async def test_what_was_done_is_not_looked_up() -> None:
    ctx = context(FakeGate())
    await ctx.take_back(ctx.undo[1], lambda: None, check=lambda: pytest.fail("it is known"))


async def test_taking_back_that_was_begun_goes_on_without_another_look() -> None:
    begun = JournalEntry(
        effect="undo:pay", occurrence=0, key="u0", status=EffectStatus.UNKNOWN, epoch=1
    )
    acted: list[str] = []
    ctx = context(FakeGate(), begun)
    await ctx.take_back(
        ctx.undo[0], lambda: acted.append("again"), check=lambda: pytest.fail("begun already")
    )
    assert acted == ["again"]


async def test_a_stopped_attempt_takes_nothing_back() -> None:
    gate = FakeGate()
    gate.may_act = False
    ctx = context(gate)
    for effect in ctx.undo:
        with pytest.raises(StepStopped):
            await ctx.take_back(
                effect, lambda: pytest.fail("acted"), check=lambda: pytest.fail("looked")
            )


async def test_plain_functions_take_back_the_same_way() -> None:
    gate = FakeGate()
    held = attempt(undoes="pay", undo=(MAYBE, PAID))
    ctx = BlockingContext(held, Effects(held, gate), asyncio.get_running_loop())
    acted: list[str] = []

    def body() -> list[object]:
        return [
            ctx.take_back(ctx.undo[0], lambda: acted.append("a"), check=lambda: NOT_DONE),
            ctx.take_back(ctx.undo[1], lambda key: key),
        ]

    key = effect_key(recovery_key("r", "s"), "undo:pay", 1)
    assert await asyncio.to_thread(body) == [None, key]
    assert acted == []
    assert [type(event) for event in gate.reported] == [EffectIntended, EffectConfirmed]
