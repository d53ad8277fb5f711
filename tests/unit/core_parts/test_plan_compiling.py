"""Plans: what is refused with which path, and what a compiled plan says."""

import sys

import pytest

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import (
    Merge,
    MergeRule,
    OnFailure,
    Plan,
    RetryPolicy,
    Risk,
    StepPlan,
    StepRole,
)  # fmt: skip
from dalsegno.streams.core.plan import CompiledPlan, PlanRefused, compile_plan

POLICY = Policy(queues=("default", "slow"), steps_max=20_000)
TTL = 86_400_000


def step(name: str, *needs: str, **how) -> StepPlan:
    return StepPlan(name=name, needs=needs, **how)


def compiled(*steps: StepPlan, ttl_ms: int = TTL, policy: Policy = POLICY, **how) -> CompiledPlan:
    return compile_plan(Plan(steps=steps, **how), policy=policy, ttl_ms=ttl_ms)


DIAMOND = (
    step("a", writes=("x",)),
    step("b", "a", reads=("x",), writes=("y",), may_write=("note b",), timeout_ms=5_000),
    step("c", "a", reads=("x",), writes=("z",), timeout_ms=70_000),
    step("d", "b", "c", "b", reads=("y", "z", "input"), writes=("x",), compensate="undo d"),
    step("undo d", role=StepRole.COMPENSATION, reads=("x",), writes=("x",)),
)


def test_a_diamond():
    plan = compiled(*DIAMOND)
    assert plan.index == {"a": 0, "b": 1, "c": 2, "d": 3, "undo d": 4}
    assert plan.needs == ((), (0,), (0,), (1, 2), ())
    assert plan.needs_count == (0, 1, 1, 2, 0)
    assert plan.dependents == ((1, 2), (3,), (3,), (), ())
    assert plan.roots == (0,)
    assert plan.order == (0, 1, 2, 3)
    assert plan.forward_count == 4
    assert plan.longest_path_ms == 60_000 + 70_000 + 60_000
    assert plan.writes[1] == frozenset({"y", "note b"})


def test_packed_and_back_it_is_the_same_plan():
    plan = compiled(
        *DIAMOND,
        step("e", queue="slow", retry=RetryPolicy(max_attempts=9), depends_on=("svc",), goal="g"),
        secrets=("x",),
        merges=(Merge(field="m", rule=MergeRule.UNION),),
        gates=("fraud",),
        on_failure=OnFailure.COMPENSATE,
        stop_clocks_for_people=True,
    )
    back = CompiledPlan.unpack(plan.pack())
    assert back.plan == plan.plan
    assert back.digest == plan.digest
    assert back.pack() == plan.pack()
    assert (back.order, back.longest_path_ms) == (plan.order, plan.longest_path_ms)
    assert back.secrets == frozenset({"x"})
    assert back.merges == {"m": MergeRule.UNION}


def test_the_digest_tells_plans_apart_and_nothing_else():
    one = compiled(*DIAMOND)
    assert one.digest == compiled(*DIAMOND, ttl_ms=200_000, policy=Policy()).digest
    others = [
        compiled(*DIAMOND[:3]),
        compiled(*DIAMOND, secrets=("x",)),
        compiled(DIAMOND[0], DIAMOND[2], DIAMOND[1], *DIAMOND[3:]),
        compiled(*DIAMOND[:4], step("undo d", role=StepRole.COMPENSATION)),
    ]
    assert len({plan.digest for plan in [one, *others]}) == 5


def test_golden_bytes():
    plan = compiled(step("a", writes=("x",)), step("b", "a", reads=("x",), goal="g"))
    assert plan.pack().hex() == GOLDEN
    assert CompiledPlan.unpack(bytes.fromhex(GOLDEN)).plan == plan.plan


GOLDEN = (
    "970192dc0011a161909091a1789090a0cdea60cd03e8950314cd01f4cdea60ccc8a46e6f6e65a0a7666f7277"
    "617264a0a0a57265747279a66e6f74696679dc0011a16291a16191a178909090a0cdea60cd03e8950314cd01"
    "f4cdea60ccc8a46e6f6e65a0a7666f7277617264a0a167a57265747279a66e6f74696679909090a670657273"
    "6f6ec2"
)


def test_an_extension_keeps_positions_and_the_plan_before():
    plan = compiled(*DIAMOND)
    longer = plan.extend([step("e", "d"), step("f", "e")], policy=POLICY, ttl_ms=TTL)
    assert len(plan.steps) == 5
    assert longer.index["e"] == 5
    assert longer.dependents[3] == (5,)
    assert longer.needs[:5] == plan.needs
    assert longer.plan == compiled(*DIAMOND, step("e", "d"), step("f", "e")).plan
    assert longer.digest != plan.digest
    for steps, code in (
        ([step("a")], "duplicate_name"),
        ([step("e", "f"), step("f", "e")], "cycle"),
        ([step("e", writes=("x",))], "overlapping_writes"),
        ([step("e", "none")], "unknown_need"),
        ([], "no_steps"),
    ):
        with pytest.raises(PlanRefused) as refused:
            plan.extend(steps, policy=POLICY, ttl_ms=TTL)
        assert refused.value.code == code


REFUSED = [
    ("no_steps", (), ()),
    ("duplicate_name", ("a",), (step("a"), step("a"))),
    ("bad_name", ("",), (step(""),)),
    ("bad_name", ("a\x00b",), (step("a\x00b"),)),
    ("bad_name", (" a",), (step(" a"),)),
    ("bad_name", ("x" * 129,), (step("x" * 129),)),
    ("bad_name", ("a",), (step("a", reads=("bad\n",)),)),
    ("bad_name", ("a",), (step("a", may_write=("\ud800",)),)),
    ("bad_name", ("a",), (step("a", depends_on=("",)),)),
    ("unknown_need", ("a", "b"), (step("a", "b"),)),
    ("unknown_need", ("a", "u"), (step("a", "u"), step("u", role=StepRole.COMPENSATION))),
    ("unknown_need", ("u", "a"), (step("a"), step("u", "a", role=StepRole.COMPENSATION))),
    ("unknown_compensation", ("a", "b"), (step("a", compensate="b"),)),
    ("unknown_compensation", ("a", "b"), (step("a", compensate="b"), step("b"))),
    ("cycle", ("a", "a"), (step("a", "a"),)),
    ("cycle", ("a", "b", "c", "a"), (step("z"), step("a", "c"), step("b", "a"), step("c", "b"))),
    ("cycle", ("c", "b", "c"), (step("a", "c"), step("b", "c"), step("c", "b"))),
    ("cycle", ("a", "d", "a"), (
        step("a", "d"), step("b", "a"), step("c", "a"), step("d", "a", "b"))),
    ("risky_step", ("b",), (step("a"), step("b", queue="default", risk=Risk.MONEY))),
    ("risky_step", ("b",), (step("a"), step("b", queue="", risk=Risk.MONEY, risk_reason="r"))),
    ("unknown_queue", ("a",), (step("a", queue="fast"),)),
    ("bad_limits", ("a",), (step("a", timeout_ms=0),)),
    ("bad_limits", ("a",), (step("a", timeout_ms=2**62),)),
    ("bad_limits", ("a",), (step("a", heartbeat_ms=-1),)),
    ("bad_limits", ("a",), (step("a", retry=RetryPolicy(max_attempts=0)),)),
    ("bad_limits", ("a",), (step("a", retry=RetryPolicy(max_infra_attempts=0)),)),
    ("bad_limits", ("a",), (step("a", retry=RetryPolicy(initial_ms=-1)),)),
    ("bad_limits", ("a",), (step("a", retry=RetryPolicy(initial_ms=10, max_ms=9)),)),
    ("bad_limits", ("a",), (step("a", retry=RetryPolicy(factor_percent=99)),)),
    ("overlapping_writes", ("b", "c"), (
        step("a"), step("b", "a", writes=("x",)), step("c", "a", writes=("x",)))),
    ("overlapping_writes", ("b", "c"), (
        step("a"), step("b", "a", writes=("x",)), step("c", "a", may_write=("x",)))),
    ("overlapping_writes", ("b", "c"), (
        step("a"), step("b", "a", reads=("x",)), step("c", "a", writes=("x",)))),
    ("overlapping_writes", ("b", "c"), (
        step("a"), step("b", "a", writes=("x",)), step("c", "a", reads=("x",)))),
    ("overlapping_writes", ("w1", "r"), (
        step("w1", writes=("x",)), step("w2", "w1", writes=("x",)), step("r", reads=("x",)))),
]  # fmt: skip


@pytest.mark.parametrize(("code", "path", "steps"), REFUSED)
def test_what_cannot_work_is_refused_with_the_path(code, path, steps):
    with pytest.raises(PlanRefused) as refused:
        compiled(*steps)
    assert refused.value.code == code
    if code == "overlapping_writes":
        assert set(refused.value.path) == set(path)
    else:
        assert refused.value.path == path
    assert refused.value.detail


def test_more_steps_than_the_policy_allows():
    steps = [step(f"s{i}") for i in range(11)]
    with pytest.raises(PlanRefused, match="too_many_steps"):
        compiled(*steps, policy=Policy(steps_max=10))
    compiled(*steps, policy=Policy(steps_max=11))


def test_a_time_to_live_shorter_than_the_longest_path():
    with pytest.raises(PlanRefused) as refused:
        compiled(*DIAMOND, ttl_ms=189_999)
    assert refused.value.code == "ttl_too_short"
    assert refused.value.path == ("a", "c", "d")
    compiled(*DIAMOND, ttl_ms=190_000)
    with pytest.raises(PlanRefused, match="bad_limits"):
        compiled(step("a", timeout_ms=1), ttl_ms=0)


def test_two_merge_rules_for_one_field():
    merge = Merge(field="x", rule=MergeRule.MAX)
    with pytest.raises(PlanRefused, match="duplicate_name"):
        compiled(step("a"), merges=(merge, merge))


@pytest.mark.parametrize(
    "steps",
    [
        # Ordered by a path, not by a direct need.
        (step("a", writes=("x",)), step("b", "a"), step("c", "b", reads=("x",), writes=("x",))),
        # Read before it is written again.
        (step("a", reads=("x",)), step("b", "a", writes=("x",)), step("c", "b", reads=("x",))),
        # Read by many, written by none: it comes with the run.
        (step("a", reads=("x",)), step("b", reads=("x",))),
        # Its own reader and writer.
        (step("a", reads=("x",), writes=("x",), may_write=("x",)),),
    ],
)
def test_ordered_steps_share_fields(steps):
    compiled(*steps)


def test_a_merge_rule_lets_unordered_steps_share_a_field():
    steps = (
        step("a", writes=("x",)), step("b", writes=("x",)), step("r", reads=("x",)),
    )  # fmt: skip
    compiled(*steps, merges=(Merge(field="x", rule=MergeRule.MAX),))
    with pytest.raises(PlanRefused):
        compiled(*steps, merges=(Merge(field="y", rule=MergeRule.MAX),))


def test_seventeen_steps_with_many_shared_parents_are_no_cycle():
    steps = [step(f"s{i}", *(f"s{j}" for j in range(i))) for i in range(17)]
    plan = compiled(*reversed(steps))
    assert [plan.steps[i].name for i in plan.order] == [f"s{i}" for i in range(17)]


def chain(count: int) -> list[StepPlan]:
    return [
        step(f"s{i}", *([f"s{i - 1}"] if i else []), reads=("log",), writes=("log", f"out {i}"))
        for i in range(count)
    ]


def diamonds(width: int, count: int) -> list[StepPlan]:
    steps = [step("join 0", writes=("state",))]
    for d in range(count):
        middle = [f"d{d}.{i}" for i in range(width)]
        outs = tuple(f"out {name}" for name in middle)
        steps += [
            step(name, f"join {d}", reads=("state",), writes=(out,))
            for name, out in zip(middle, outs, strict=True)
        ]
        steps.append(step(f"join {d + 1}", *middle, reads=outs, writes=("state",)))
    return steps


def lines_run(steps: list[StepPlan]) -> int:
    """How many lines of Python run while a plan is compiled."""
    count = 0

    def trace(_frame: object, event: str, _arg: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    plan = Plan(steps=tuple(steps))
    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        compile_plan(plan, policy=POLICY, ttl_ms=315_360_000_000)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    ("quarter", "whole"),
    [(chain(500), chain(2_000)), (diamonds(200, 12), diamonds(200, 50))],
    ids=["chain of 2,000", "50 diamonds of 200"],
)
def test_long_plans_take_linear_work(quarter, whole):
    # Four times the steps; a quadratic check would take sixteen times the work.
    assert lines_run(whole) < 5 * lines_run(quarter)


def test_a_conflict_at_the_far_end_of_a_long_plan_is_found():
    steps = [*diamonds(50, 10), step("late", "join 9", writes=("out d9.7",))]
    with pytest.raises(PlanRefused) as refused:
        compiled(*steps, ttl_ms=10**10)
    assert set(refused.value.path) == {"d9.7", "late"}
    cyclic = chain(2_000)
    cyclic[0] = step("s0", "s1999")
    with pytest.raises(PlanRefused) as refused:
        compiled(*cyclic, ttl_ms=10**10)
    assert refused.value.code == "cycle"
    assert len(refused.value.path) == 2_001
