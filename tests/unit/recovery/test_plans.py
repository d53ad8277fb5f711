"""Recovery plans and previews: what they say is what then happens."""

from __future__ import annotations

from tests.unit.core.log import Log, chain, handoffs, plan_of, step, transitions
from tests.unit.recovery.test_freezing import QUICK, damaged, failed, freeze, given, release

from dalsegno.ops.plan_drawing import dot, mermaid
from dalsegno.schemas.events import EffectIntended, FailureType, StepFailed
from dalsegno.schemas.plan import UnknownPolicy
from dalsegno.streams.core.effects import effect_key, recovery_key
from dalsegno.streams.core.recovery.plan import Doing, RecoveryPlan
from dalsegno.streams.engine.jsonable import jsonable


def diamond() -> Log:
    """a is done; b was lost with an unknown effect, c asks a person, d is behind both."""
    log = Log()
    log.start(
        plan_of(
            step("a", retry=QUICK),
            step("b", needs=("a",), retry=QUICK, unknown=UnknownPolicy.CHECK),
            step("c", needs=("a",), retry=QUICK),
            step("d", needs=("b", "c"), depends_on=("mail",)),
            step("e", needs=("a",), retry=QUICK, timeout_ms=20_000),
            step("f", needs=("e",), timeout_ms=20_000),
        )
    )
    log.began("a")
    log.done("a", ops=[])
    for name in ("b", "c", "e"):
        log.began(name)
    key = effect_key(recovery_key("r", "b"), "charge", 0)
    log.put(EffectIntended(run_id="r", step="b", epoch=1, effect="charge", occurrence=0, key=key))
    freeze(log)
    failed(log, "r", "b")
    log.put(StepFailed(run_id="r", step="c", epoch=1, failure_type=FailureType.PERMANENT))
    failed(log, "r", "e")
    log.tick()
    return log


def plan_now(log: Log, run_id: str = "r", width: int = 4) -> RecoveryPlan:
    found = log.partition.previews.plan(run_id, width)
    assert found is not None
    return found


def test_a_plan_says_what_is_lost_kept_redone_checked_and_asked() -> None:
    plan = plan_now(diamond())
    assert plan.goal == "flow (version 1): d; f"
    assert plan.kept == ("a",)
    assert [(each.step, each.by) for each in plan.lost] == [
        ("b", "StepFailed"),
        ("c", "StepFailed"),
        ("e", "StepFailed"),
    ]
    assert plan.doing(Doing.CHECK) == ("b",)
    assert plan.doing(Doing.REDO) == ("e",)
    assert plan.doing(Doing.PERSON) == ("c",)
    assert plan.doing(Doing.BEHIND) == ("d",)
    assert plan.doing(Doing.FIRST) == ("f",)
    assert plan.groups == (("b", "e", "c"), ("f", "d"))
    (check,) = (each for each in plan.steps if each.doing is Doing.CHECK)
    assert check.unknown == ("charge[0]",)
    assert plan.work_ms == 6_000 * 3 + 2_000 * 2
    assert plan.bound_ms == 12_000
    assert plan.predicted_ms == 6_000


def test_the_digest_is_that_of_the_transition_with_which_the_damage_began() -> None:
    log = Log()
    log.start(chain(3, retry=QUICK))
    log.began("s0")
    failed(log, "r")
    assert plan_now(log).digest in transitions(log.outputs)[-1].detail


def test_figures_count_what_is_held_out_and_frozen() -> None:
    log = Log()
    freeze(log)
    damaged(log, 3)
    log.tick(2)
    found = log.partition.previews.figures()
    assert found.held == {"freeze": 3, "fault point": 0, "turn": 0}
    assert (found.recovering, found.frozen_ms) == (0, 2_000)
    release(log)
    found = log.partition.previews.figures()
    assert (found.held["freeze"], found.recovering, found.frozen_ms) == (2, 1, 0)


def test_looking_changes_nothing() -> None:
    log = diamond()
    digest = log.partition.digest()
    plan_now(log)
    log.partition.previews.look(limit=10, width=4)
    assert log.partition.digest() == digest
    assert log.partition.previews.plan("nobody", 4) is None


def test_a_preview_lists_runs_in_the_order_in_which_the_release_gives_them() -> None:
    log = Log()
    freeze(log, reason="look first")
    damaged(log, 6)
    log.start(chain(7, retry=QUICK, depends_on=("mail",)), "longest")
    log.began("s0", run_id="longest")
    failed(log, "longest")
    log.tick(2)
    found = log.partition.previews.look(limit=100, width=1)
    assert (found.waiting_runs, found.waiting_steps, len(found.runs)) == (7, 7, 7)
    assert [(each.reason, each.releasing) for each in found.freezes] == [("look first", False)]
    assert found.depends_on == (("mail", 1),)
    assert found.bound_ms == found.work_ms == 6 * 2_000 + 7_000 <= found.predicted_ms
    before = len(log.outputs)
    release(log, rate_per_s=1)
    log.tick(8)
    assert [run_id for run_id, _, _ in given(log.outputs[before:])] == [
        each.run_id for each in found.runs
    ]


def test_a_preview_is_bounded_and_by_scope() -> None:
    log = Log()
    freeze(log, fault_point="payments")
    damaged(log, 5, depends_on=("payments",))
    log.tick(2)
    found = log.partition.previews.look(fault_point="payments", limit=2, width=4)
    assert (found.waiting_runs, len(found.runs)) == (5, 2)
    assert log.partition.previews.look(fault_point="mail", limit=2, width=4).waiting_steps == 0
    assert log.partition.previews.look(flow="other", limit=2, width=4).runs == ()


def test_drawings_have_every_step_once_and_survive_any_name() -> None:
    log = Log()
    log.start(plan_of(step('"];</x>'), step("b", needs=('"];</x>',))))
    plan = jsonable(plan_now(log))
    assert isinstance(plan, dict)
    assert mermaid(plan).count("-->") == dot(plan).count("->") == 1
    assert "#quot;];#lt;/x#gt;<br/>running" in mermaid(plan)
    assert '\\"];</x>\\nrunning' in dot(plan)
    assert handoffs(log.outputs)
