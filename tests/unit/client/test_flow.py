"""A flow as a program declares it, and the plan that it becomes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dalsegno.client import (
    BlockingContext,
    Context,
    Flow,
    FlowError,
    RetryPolicy,
    Risk,
    SettingsError,
    Worker,
)
from dalsegno.schemas.plan import Merge, MergeRule, OnFailure, StepRole, UnknownPolicy
from dalsegno.streams.client.step import Outputs


def declared(ttl: str = "30m") -> Flow:
    flow = Flow(
        "risk-assessment",
        version=2,
        ttl=ttl,
        secrets=["ssn"],
        merges={"notes": "collect"},
        gates=["fraud"],
        on_failure="compensate",
    )

    @flow.step(
        reads=["applicant"],
        writes=["identity"],
        depends_on=["identity-service"],
        timeout="20s",
        heartbeat=timedelta(milliseconds=500),
        retry=RetryPolicy(max_attempts=5),
        unknown="check",
    )
    async def verify_identity(ctx: Context) -> Outputs:
        """Who the applicant is."""
        return {"identity": ctx["applicant"]}

    @flow.step(
        needs=[verify_identity],
        reads=["identity"],
        writes=["score"],
        may_write=["notes"],
        compensate="withdraw_score",
        queue="slow",
        goal="A score that a person can defend",
    )
    def score(ctx: BlockingContext) -> Outputs:
        return {"score": ctx.effect("publish", print)}

    @flow.compensation(reads=["score"], writes=[])
    def withdraw_score(ctx: BlockingContext) -> Outputs:
        for effect in ctx.undo:
            ctx.take_back(effect, print)
        return None

    return flow


def test_declared_steps_become_a_plan() -> None:
    plan = declared().plan()
    verify, score, withdraw = plan.steps
    assert (verify.name, verify.queue, verify.timeout_ms, verify.heartbeat_ms) == (
        "verify_identity",
        "default",
        20_000,
        500,
    )
    assert verify.goal == "Who the applicant is."
    assert verify.retry.max_attempts == 5
    assert verify.unknown is UnknownPolicy.CHECK
    assert score.needs == ("verify_identity",)
    assert score.queue == "slow"
    assert score.may_write == ("notes",)
    assert score.compensate == "withdraw_score"
    assert withdraw.role is StepRole.COMPENSATION
    assert plan.secrets == ("ssn",)
    assert plan.merges == (Merge(field="notes", rule=MergeRule.COLLECT),)
    assert plan.on_failure is OnFailure.COMPENSATE
    assert declared().ttl_ms == 1_800_000


def test_the_decorator_gives_the_function_back() -> None:
    flow = Flow("f")

    async def body(ctx: Context) -> Outputs:
        return None

    assert flow.step(reads=[], writes=[])(body) is body


def test_needs_may_be_functions_names_or_both_in_any_order_of_declaration() -> None:
    flow = Flow("f")
    flow.observed(name="first", reads=[], writes=[])

    @flow.step(reads=[], writes=[], needs=["first", "last"])
    async def middle(ctx: Context) -> Outputs:
        return None

    @flow.step(reads=[], writes=[], needs=["first"])
    async def last(ctx: Context) -> Outputs:
        return None

    assert flow.plan().steps[1].needs == ("first", "last")


def test_observed_steps_have_no_queue() -> None:
    flow = Flow("f", queue="q")
    flow.observed(name="by_itself", reads=[], writes=["x"])
    assert flow.plan().steps[0].queue == ""


def test_a_service_of_its_own_is_never_taken_for_a_step() -> None:
    flow = Flow("f")

    def stranger() -> None: ...

    @flow.step(reads=[], writes=[], needs=[stranger])
    async def body(ctx: Context) -> Outputs:
        return None

    with pytest.raises(FlowError, match=r"flow 'f', step 'body': .*'stranger'.*no step"):
        flow.plan()


def test_what_cannot_be_meant_is_refused_where_it_is_declared() -> None:
    flow = Flow("f")

    async def body(ctx: Context) -> Outputs:
        return None

    with pytest.raises(FlowError, match="reads must be a list"):
        flow.step(reads="applicant")(body)
    flow.step(reads=[], writes=[])(body)
    with pytest.raises(FlowError, match="two steps"):
        flow.step(reads=[], writes=[])(body)
    with pytest.raises(FlowError, match="ttl"):
        Flow("f", ttl="soon")
    with pytest.raises(FlowError, match="version"):
        Flow("f", version=0)
    with pytest.raises(FlowError, match="no step"):
        Flow("f").plan()


def test_a_wrong_duration_or_policy_names_its_step() -> None:
    flow = Flow("f")
    flow.observed(name="slow", reads=[], writes=[], timeout="later")
    with pytest.raises(FlowError, match="step 'slow': timeout"):
        flow.plan()


# What `dalsegno check` finds.


def codes(flow: Flow) -> list[str]:
    return [finding.code for finding in flow.check()]


def test_a_sound_flow_has_no_findings() -> None:
    assert codes(declared(ttl="4h")) == []


def test_undeclared_reads_and_writes_are_errors() -> None:
    flow = Flow("f")

    @flow.step(reads=["a"])
    async def body(ctx: Context) -> Outputs:
        return None

    assert codes(flow) == ["undeclared"]


def test_what_the_service_would_refuse_is_found_before() -> None:
    flow = Flow("f", ttl="10s")
    flow.observed(name="a", reads=[], writes=[], needs=["b"])
    flow.observed(name="b", reads=[], writes=[], needs=["a"])
    assert "cycle" in codes(flow)
    short = Flow("g", ttl="10s")
    short.observed(name="a", reads=[], writes=[], timeout="1m")
    assert "ttl_too_short" in codes(short)


def test_a_ttl_that_only_holds_without_retries_is_a_warning() -> None:
    flow = Flow("f", ttl="2m")
    flow.observed(name="a", reads=[], writes=[], timeout="1m")
    assert codes(flow) == ["ttl_short_with_retries"]


@pytest.mark.parametrize(
    ("ttl_ms", "found"),
    [
        # Two steps of a minute each, with 2 + 3 attempts to lose but one, and what lies between:
        # 0.5, 1, 2 s. By their own failures alone: two attempts each, and 0.5 s.
        (2 * 240_000 + 2 * 3_500, []),
        (2 * 240_000 + 2 * 3_500 - 1, ["ttl_short_with_faults"]),
        (2 * 120_000 + 2 * 500, ["ttl_short_with_faults"]),
        (2 * 120_000 + 2 * 500 - 1, ["ttl_short_with_retries"]),
    ],
)
def test_a_ttl_covers_lost_attempts_timeouts_and_backoff_too(ttl_ms: int, found: list[str]) -> None:
    flow = Flow("f", ttl=f"{ttl_ms}ms")
    retry = RetryPolicy(max_attempts=2, max_infra_attempts=3)
    flow.observed(name="a", reads=[], writes=[], timeout="1m", retry=retry)
    flow.observed(name="b", reads=[], writes=[], timeout="1m", retry=retry, needs=["a"])
    flow.observed(name="beside", reads=[], writes=[], timeout="1m", retry=retry)
    assert codes(flow) == found


def test_risk_needs_a_way_back_or_a_reason() -> None:
    flow = Flow("f")
    flow.observed(name="pay", reads=[], writes=[], risk=Risk.MONEY)
    assert "risk_without_way_back" in codes(flow)


def test_fields_that_look_like_secrets_should_be_marked() -> None:
    flow = Flow("f")
    flow.observed(name="a", reads=["api_key", "keyboard"], writes=["card_number"])
    assert [f.message.split("'")[1] for f in flow.check()] == ["api_key", "card_number"]
    marked = Flow("f", secrets=["api_key", "card_number"])
    marked.observed(name="a", reads=["api_key"], writes=["card_number"])
    assert codes(marked) == []


def test_effects_are_named_by_literal_texts() -> None:
    flow = Flow("f")

    @flow.step(reads=[], writes=[])
    async def body(ctx: Context) -> Outputs:
        await ctx.effect("fine", print)
        await ctx.effect(f"bad-{ctx.epoch}", print)
        return None

    assert codes(flow) == ["effect_not_named"]


def test_clean_up_reaches_every_way_out() -> None:
    flow = Flow("f", on_failure="compensate")

    @flow.step(reads=[], writes=[])
    async def charge(ctx: Context) -> Outputs:
        await ctx.effect("charge", print)
        return None

    @flow.compensation(reads=[], writes=[])
    async def refund(ctx: Context) -> Outputs:
        return None

    assert sorted(codes(flow)) == ["compensation_unused", "effect_without_way_back"]


def test_an_undo_of_an_effect_is_a_compensation_that_belongs_to_one_step() -> None:
    flow = Flow("f")

    @flow.step(reads=[], writes=[])
    async def hotel(ctx: Context) -> Outputs:
        await ctx.effect("book", print, undo="cancel_booking")
        return None

    @flow.step(reads=[], writes=[])
    async def flight(ctx: Context) -> Outputs:
        await ctx.effect("book", print, undo="cancel_booking")
        await ctx.effect("seat", print, undo="hotel")
        return None

    @flow.compensation(reads=[], writes=[])
    async def cancel_booking(ctx: Context) -> Outputs:
        return None

    found = [(finding.code, finding.step) for finding in flow.check()]
    assert found == [("shared_undo", "flight"), ("unknown_undo", "flight")]


def test_a_step_that_can_be_taken_back_declares_what_it_does() -> None:
    flow = Flow("f", on_failure="compensate")

    @flow.step(reads=[], writes=[], compensate="refund")
    async def charge(ctx: Context) -> Outputs:
        return None

    @flow.compensation(reads=[], writes=[])
    async def refund(ctx: Context) -> Outputs:
        return None

    assert codes(flow) == ["act_not_declared"]

    passed_on = Flow("f", on_failure="compensate")

    @passed_on.step(reads=[], writes=[], compensate="undo")
    async def charge_elsewhere(ctx: Context) -> Outputs:
        return dict(ctx)

    @passed_on.compensation(reads=[], writes=[])
    async def undo(ctx: Context) -> Outputs:
        return None

    assert codes(passed_on) == [], "whoever gets the context may have the effect"


def test_two_steps_with_one_compensation_are_an_error() -> None:
    flow = Flow("f")
    flow.observed(name="a", reads=[], writes=[], compensate="undo")
    flow.observed(name="b", reads=[], writes=[], compensate="undo")

    @flow.compensation(reads=[], writes=[])
    async def undo(ctx: Context) -> Outputs:
        return None

    assert codes(flow) == ["shared_compensation"]


def test_a_pivot_is_in_the_plan_and_what_stands_behind_it_is_not_taken_back() -> None:
    flow = Flow("f", on_failure="compensate")
    flow.observed(name="a", reads=[], writes=[], pivot=True)
    flow.observed(name="b", reads=[], writes=[], needs=["a"], compensate="undo")

    @flow.compensation(reads=[], writes=[])
    async def undo(ctx: Context) -> Outputs:
        return None

    assert [step.pivot for step in flow.plan().steps] == [True, False, False]
    assert codes(flow) == ["compensation_behind_pivot"]
    loose = Flow("f")
    loose.observed(name="a", reads=[], writes=[], pivot=True)
    assert codes(loose) == ["pivot_unused"]


def test_errors_come_before_warnings() -> None:
    flow = Flow("f", ttl="2m")
    flow.observed(name="a", timeout="1m")
    assert codes(flow) == ["undeclared", "ttl_short_with_retries"]


def test_a_worker_of_one_queue_runs_the_steps_that_go_there_and_no_others() -> None:
    worker = Worker([declared()], bootstrap_servers="nowhere:9", queues=["slow"])
    assert [key[2] for key in worker.steps] == ["score"]
    worker = Worker([declared()], bootstrap_servers="nowhere:9")
    assert len(worker.steps) == 3
    with pytest.raises(SettingsError, match="queue 'gpu': the flows name default, slow"):
        Worker([declared()], bootstrap_servers="nowhere:9", queues=["slow", "gpu"])
