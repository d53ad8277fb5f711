"""A plan that grows: the same verdicts as for the whole, at the cost of the new steps alone."""

from __future__ import annotations

import sys
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import Merge, MergeRule, Plan, StepPlan, StepRole
from dalsegno.streams.core.plan import CompiledPlan, PlanRefused, compile_plan
from dalsegno.streams.core.plan_store import PlanStore

POLICY = Policy(steps_max=20_000)
TTL = 86_400_000
FIELDS = ("x", "y", "z", "merged")


@st.composite
def growing(draw: st.DrawFn) -> tuple[list[StepPlan], list[int]]:
    """Steps in an order in which they could have come, and where to cut them into parts."""
    steps: list[StepPlan] = []
    for i in range(draw(st.integers(2, 9))):
        names = [f"s{n}" for n in range(i)]
        some = st.lists(st.sampled_from(FIELDS), max_size=2, unique=True).map(tuple)
        role = StepRole.COMPENSATION if draw(st.integers(0, 9)) == 9 else StepRole.FORWARD
        needs = draw(st.lists(st.sampled_from(names), max_size=3)) if i else []
        steps.append(
            StepPlan(
                name=f"s{i}",
                needs=tuple(needs) if role is StepRole.FORWARD else (),
                reads=draw(some),
                writes=draw(some),
                role=role,
                timeout_ms=draw(st.integers(1, 5)) * 10_000,
            )
        )
    cuts = draw(st.lists(st.integers(1, len(steps) - 1), unique=True, max_size=4))
    return steps, sorted(cuts)


def parts_of(steps: list[StepPlan], cuts: list[int]) -> list[list[StepPlan]]:
    edges = [0, *cuts, len(steps)]
    return [steps[a:b] for a, b in pairwise(edges)]


def whole_of(steps: list[StepPlan]) -> Plan:
    return Plan(steps=tuple(steps), merges=(Merge(field="merged", rule=MergeRule.MAX),))


def grown(parts: list[list[StepPlan]], ttl_ms: int) -> list[CompiledPlan]:
    plans = [compile_plan(whole_of(parts[0]), policy=POLICY, ttl_ms=ttl_ms)]
    for part in parts[1:]:
        plans.append(plans[-1].extend(part, policy=POLICY, ttl_ms=ttl_ms))
    return plans


@settings(max_examples=300, deadline=None)
@given(growing(), st.sampled_from([TTL, 90_000]))
def test_in_parts_or_whole_a_plan_is_judged_alike(
    drawn: tuple[list[StepPlan], list[int]], ttl_ms: int
) -> None:
    steps, cuts = drawn
    try:
        whole = compile_plan(whole_of(steps), policy=POLICY, ttl_ms=ttl_ms)
    except PlanRefused:
        # It may have faults of two kinds: in parts, the one that comes first is found.
        with pytest.raises(PlanRefused):
            grown(parts_of(steps, cuts), ttl_ms)
        return
    plans = grown(parts_of(steps, cuts), ttl_ms)
    last = plans[-1]
    for name in ("plan", "index", "writes", "merges", "secrets", "forward_count"):
        assert getattr(last, name) == getattr(whole, name), name
    assert last.needs == whole.needs
    assert last.dependents == whole.dependents
    assert last.longest_path_ms == whole.longest_path_ms
    assert sorted(last.order) == sorted(whole.order)
    back = CompiledPlan.unpack(*(plan.pack() for plan in plans))
    assert (back.plan, back.digest, back.pack()) == (last.plan, last.digest, last.pack())
    assert (back.packed_bytes, back.before) == (last.packed_bytes, last.before)


def agent_plan(count: int) -> CompiledPlan:
    """An agent's plan after so many steps, each planned when the one before was done."""
    first = StepPlan(name="s0", writes=("f0", "notes"))
    plan = compile_plan(Plan(steps=(first,)), policy=POLICY, ttl_ms=TTL)
    for i in range(1, count):
        plan = plan.extend([next_step(i)], policy=POLICY, ttl_ms=TTL)
    return plan


def next_step(i: int) -> StepPlan:
    reads = ("question", f"f{i - 1}", "f0", "notes")
    return StepPlan(
        name=f"s{i}", needs=(f"s{i - 1}",), reads=reads, writes=(f"f{i}", "notes"), timeout_ms=1_000
    )


def calls_of(plan: CompiledPlan, i: int) -> int:
    """Calls of functions, Python's and C's, in one extension."""
    count = 0

    def seen(_frame: object, what: str, _arg: object) -> None:
        nonlocal count
        count += what in {"call", "c_call"}

    sys.setprofile(seen)
    try:
        plan.extend([next_step(i)], policy=POLICY, ttl_ms=TTL)
    finally:
        sys.setprofile(None)
    return count


def test_an_extension_costs_what_its_own_steps_cost() -> None:
    short, long = agent_plan(10), agent_plan(1_000)
    # A few calls more or less are caches of the interpreter; a step of the plan would be hundreds.
    assert abs(calls_of(long, 1_000) - calls_of(short, 10)) < 20
    assert len(long.pack()) < len(short.pack()) + 32


def test_an_extension_that_conflicts_with_an_old_step_is_refused_with_both() -> None:
    plan = agent_plan(50)
    for reads, writes, path in (
        (("notes",), (), ("s49", "late")),
        ((), ("f3",), ("s3", "late")),
        ((), ("f0",), ("s0", "late")),
        ((), ("question",), ("s1", "late")),
    ):
        late = StepPlan(name="late", reads=reads, writes=writes)
        with pytest.raises(PlanRefused) as refusal:
            plan.extend([late], policy=POLICY, ttl_ms=TTL)
        assert (refusal.value.code, refusal.value.path) == ("overlapping_writes", path)


def test_parts_stay_as_long_as_a_longer_plan_is_named() -> None:
    store = PlanStore()
    plans = grown([[StepPlan(name="s0")]], TTL)
    for i in range(1, 4):
        more = msgspec.structs.replace(next_step(i), reads=())
        plans.append(plans[-1].extend([more], policy=POLICY, ttl_ms=TTL))
    entries = [store.interned(plan) for plan in plans]
    store.hold(entries[0])
    store.hold(entries[0])
    for shorter, longer in pairwise(entries):
        store.hold(longer)
        store.drop(shorter.plan.digest)
    packed = {digest: store.packed(digest) for digest in store.digests()}
    assert packed == {plan.digest: plan.pack() for plan in plans}
    restored = PlanStore()
    for digest, part in packed.items():
        restored.restore(digest, part or b"")
    restored.restore_hold(plans[0].digest)
    restored.restore_hold(plans[3].digest)
    for known in (store, restored):
        assert known.get(plans[3].digest).plan.plan == plans[3].plan
        assert known.get(plans[0].digest).plan.plan == plans[0].plan
        known.take_dirty()
        known.drop(plans[3].digest)
        assert known.digests() == [plans[0].digest]
        assert known.take_dirty() == [plan.digest for plan in reversed(plans[1:])]
        known.drop(plans[0].digest)
        assert known.digests() == []
