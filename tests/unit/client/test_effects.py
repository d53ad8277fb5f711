"""Effects: what is reported around an act, what is never done again, and what a receiver is
told.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.client.fakes import FakeGate, attempt, effects_of
from tests.unit.core.log import Log, plan_of, step

from dalsegno.client import NOT_DONE, Context, Effect, Permanent, StepStopped, Unsafe
from dalsegno.schemas import values
from dalsegno.schemas.events import EffectConfirmed, EffectIntended
from dalsegno.schemas.outputs import EffectStatus, JournalEntry, Outcome
from dalsegno.streams.client.attempt import StopReason
from dalsegno.streams.client.effects import Effects
from dalsegno.streams.core.effects import effect_key, recovery_key


def entry(name: str, occurrence: int, status: EffectStatus, result: object = None) -> JournalEntry:
    return JournalEntry(
        effect=name,
        occurrence=occurrence,
        key=effect_key(recovery_key("r", "s"), name, occurrence),
        status=status,
        epoch=1,
        # type: ignore[arg-type]
        result=values.pack(result) if status is EffectStatus.CONFIRMED else b"",
    )


def context(effects: Effects) -> Context:
    return Context(effects._attempt, effects)


async def test_the_intention_is_durable_before_the_act_and_the_result_after_it() -> None:
    gate = FakeGate()
    seen: list[list[str]] = []

    async def act(amount: int) -> dict[str, int]:
        seen.append([type(event).__name__ for event in gate.reported])
        return {"paid": amount}

    result = await context(effects_of(gate)).effect(
        "pay", act, 5, undo="refund", undo_input={"n": 5}
    )
    assert result == {"paid": 5}
    assert seen == [["EffectIntended"]]
    intended, confirmed = gate.reported
    assert isinstance(intended, EffectIntended)
    assert isinstance(confirmed, EffectConfirmed)
    assert (intended.undo, values.unpack(intended.undo_input)) == ("refund", {"n": 5})
    assert values.unpack(confirmed.result) == {"paid": 5}
    assert intended.key == effect_key(recovery_key("r", "s"), "pay", 0)


async def test_a_confirmed_effect_is_never_done_again() -> None:
    gate = FakeGate()
    ctx = context(effects_of(gate, entry("pay", 0, EffectStatus.CONFIRMED, {"id": 7})))
    assert await ctx.effect("pay", lambda: pytest.fail("done again")) == {"id": 7}
    assert gate.reported == []


async def test_keys_are_pure_and_tell_two_calls_in_a_loop_apart() -> None:
    def keys_of(epoch: int) -> list[str]:
        effects = Effects(attempt(epoch=epoch), FakeGate())
        call = {"undo": "", "undo_input": None, "check": None}
        return [
            effects.call(name, print, (), {}, **call).info.key  # type: ignore[arg-type]
            for name in ("mail", "mail", "pay")
        ]

    assert keys_of(1) == keys_of(2)
    assert len(set(keys_of(1))) == 3


async def test_the_function_gets_key_epoch_and_effect_where_it_has_room_for_them() -> None:
    ctx = context(effects_of(FakeGate()))
    key = effect_key(recovery_key("r", "s"), "e", 0)

    def all_three(a: int, key: str, *, epoch: int, effect: Effect) -> list[object]:
        return [a, key, epoch, effect.step]

    assert await ctx.effect("e", all_three, 1) == [1, key, 1, "s"]
    # Given by the caller, by position or by keyword: theirs stands.
    assert await ctx.effect("e", lambda key: key, "mine") == "mine"
    assert await ctx.effect("e", lambda key: key, key="mine") == "mine"
    # Not asked for: not given.
    assert await ctx.effect("e", lambda **rest: list(rest), other=1) == ["other"]

    class Service:
        def method(self, a: int, key: str) -> str:
            return key

    assert await ctx.effect("m", Service().method, 1) == effect_key(recovery_key("r", "s"), "m", 0)


async def test_an_effect_of_unknown_outcome_is_retried_under_the_same_key() -> None:
    gate = FakeGate()
    ctx = context(effects_of(gate, entry("pay", 0, EffectStatus.UNKNOWN)))
    key = await ctx.effect("pay", lambda key: key)
    assert key == effect_key(recovery_key("r", "s"), "pay", 0)
    assert [type(event) for event in gate.reported] == [EffectIntended, EffectConfirmed]


async def test_by_policy_check_it_is_looked_up_first() -> None:
    unknown = entry("pay", 0, EffectStatus.UNKNOWN)
    gate = FakeGate()
    ctx = context(effects_of(gate, unknown, unknown="check"))
    found = await ctx.effect(
        "pay", lambda: pytest.fail("done again"), check=lambda key: {"id": key}
    )
    assert found == {"id": unknown.key}
    assert len(gate.permitted) == 1
    assert [type(event) for event in gate.reported] == [EffectConfirmed]

    gate = FakeGate()
    ctx = context(effects_of(gate, unknown, unknown="check"))
    assert await ctx.effect("pay", lambda: "now", check=lambda: NOT_DONE) == "now"


@pytest.mark.parametrize("policy", ["check", "person"])
async def test_without_a_way_to_know_a_person_decides(policy: str) -> None:
    gate = FakeGate()
    ctx = context(effects_of(gate, entry("pay", 0, EffectStatus.UNKNOWN), unknown=policy))
    with pytest.raises(Unsafe, match="never confirmed"):
        await ctx.effect("pay", lambda: pytest.fail("done again"))
    assert gate.reported == []


@pytest.mark.parametrize("policy", ["check", "person"])
async def test_such_effects_wait_for_the_service_before_they_act(policy: str) -> None:
    gate = FakeGate()
    ctx = context(effects_of(gate, unknown=policy))
    await ctx.effect("pay", lambda: 1)
    assert [event.effect for event in gate.permitted] == ["pay"]
    assert [type(event) for event in gate.reported] == [EffectConfirmed]


async def test_without_the_lease_no_effect_starts() -> None:
    gate = FakeGate(may_act=False)
    with pytest.raises(StepStopped):
        await context(effects_of(gate)).effect("pay", lambda: pytest.fail("acted"))
    assert gate.reported == []


async def test_a_lease_that_ends_between_intention_and_act_stops_the_act() -> None:
    class LosesLease(FakeGate):
        async def report(self, attempt: object, event: object) -> None:
            await super().report(attempt, event)  # type: ignore[arg-type]
            self.may_act = False

    gate = LosesLease()
    with pytest.raises(StepStopped):
        await context(effects_of(gate)).effect("pay", lambda: pytest.fail("acted"))
    assert [type(event) for event in gate.reported] == [EffectIntended]


async def test_an_act_that_was_begun_is_confirmed_even_if_its_attempt_is_stopped() -> None:
    gate = FakeGate()
    effects = effects_of(gate)
    begun, finish = asyncio.Event(), asyncio.Event()

    async def act() -> int:
        begun.set()
        await finish.wait()
        return 3

    body = asyncio.ensure_future(context(effects).effect("pay", act))
    await begun.wait()
    body.cancel()
    with pytest.raises(asyncio.CancelledError):
        await body
    finish.set()
    await asyncio.wait(list(effects._attempt.effects))
    assert [type(event) for event in gate.reported] == [EffectIntended, EffectConfirmed]


async def test_an_act_that_fails_after_the_stop_of_its_attempt_is_seen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    effects = effects_of(FakeGate())
    begun, finish = asyncio.Event(), asyncio.Event()

    async def act() -> None:
        begun.set()
        await finish.wait()
        raise OSError("connection reset")

    body = asyncio.ensure_future(context(effects).effect("pay", act))
    await begun.wait()
    effects._attempt.stopped = StopReason.SUPERSEDED
    body.cancel()
    with pytest.raises(asyncio.CancelledError):
        await body
    finish.set()
    await asyncio.wait(list(effects._attempt.effects))
    assert "effect 'pay' of ('r', 's', 1) fails after its stop" in caplog.text
    assert "connection reset" in caplog.text


async def test_an_effect_that_raises_stays_unknown() -> None:
    gate = FakeGate()

    async def act() -> None:
        raise OSError("connection reset")

    with pytest.raises(OSError, match="reset"):
        await context(effects_of(gate)).effect("pay", act)
    assert [type(event) for event in gate.reported] == [EffectIntended]


async def test_a_result_that_cannot_be_kept_is_said_to_be_done() -> None:
    with pytest.raises(Permanent, match="was done") as caught:
        await context(effects_of(FakeGate())).effect("pay", lambda: {1, 2})
    assert caught.value.error_class == "effect_result"


async def test_save_is_private_to_the_step_and_durable() -> None:
    gate = FakeGate()
    ctx = context(effects_of(gate))
    assert ctx.saved is None
    ctx.progress()
    await ctx.save({"page": 4})
    (event,) = gate.reported
    assert values.unpack(event.save) == {"page": 4}  # type: ignore[attr-defined]
    assert event.progress == 2, "a save is progress, too"  # type: ignore[attr-defined]
    later = attempt(save=values.pack({"page": 4}))
    assert Context(later, Effects(later, gate)).saved == {"page": 4}


async def test_every_save_counts_though_the_body_says_nothing_of_progress() -> None:
    """The service takes a later save of an attempt only with a higher progress."""
    gate, log = FakeGate(), Log()
    ctx = context(effects_of(gate))
    log.start(plan_of(step("s")))
    log.began("s")
    for page in range(3):
        await ctx.save({"page": page})
        log.put(gate.reported[-1])
        assert log.outcomes == [Outcome.APPLIED]
    (kept,) = [value for key, value in log.partition.parts().items() if key[:1] == b"v"]
    assert values.unpack(kept) == {"page": 2}
