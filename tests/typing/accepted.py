"""What a user's type checker accepts. Checked, never run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import NotRequired, TypedDict, assert_type

from dalsegno.client import (
    NOT_DONE,
    BlockingContext,
    Client,
    Context,
    ContextSchema,
    DecisionType,
    DecisionView,
    DependencyDown,
    DoneEffect,
    Effect,
    FieldType,
    Finding,
    Flow,
    MissingInfo,
    Plan,
    QuestionView,
    Receipt,
    RetryPolicy,
    Risk,
    RunRefused,
    RunResult,
    RunState,
    RunView,
    SagaView,
    Secret,
    StepState,
    StepView,
    Undo,
    Value,
    Worker,
)

risk = Flow(
    "risk-assessment",
    version=1,
    ttl="30m",
    merges={"notes": "union"},
    secrets=["ssn"],
    fields={"income": ("number", "Net, a month."), "ssn": "text", "notes": FieldType.LIST},
)


class Applicant(TypedDict):
    name: str


class Identity(TypedDict):
    id: str


async def ask_identity_service(applicant: Applicant, key: str, epoch: int) -> Identity:
    return {"id": applicant["name"]}


def plain_call(amount: int, effect: Effect) -> int:
    return amount


@risk.step(reads=["applicant"], writes=["identity"], depends_on=["identity-service"], timeout="20s")
async def verify_identity(ctx: Context) -> dict[str, Identity]:
    applicant = ctx.read("applicant", Applicant)
    assert_type(applicant, Applicant)
    assert_type(ctx["applicant"], Value)
    reply = await ctx.effect("lookup", ask_identity_service, applicant, undo="forget")
    assert_type(reply, Identity)
    number = await ctx.effect("count", plain_call, 5, check=lambda amount: NOT_DONE)
    assert_type(number, int)
    await ctx.save({"page": 1})
    assert_type(ctx.saved, Value)
    assert_type(ctx.cancelled, bool)
    if number:
        raise DependencyDown("bureau", retry_after="3s")
    return {"identity": reply}


@risk.step(
    needs=[verify_identity, "other"],
    reads=["identity"],
    writes=["score"],
    timeout=timedelta(seconds=3),
    retry=RetryPolicy(max_attempts=2),
    risk=Risk.NONE,
    unknown="person",
)
def score(ctx: BlockingContext) -> Mapping[str, object]:
    assert_type(ctx.effect("count", plain_call, 5), int)
    assert_type(ctx.effect("ask", ask_identity_service, {"name": "a"}), Identity)
    if ctx.progress() > 3:
        raise MissingInfo(["income"])
    return {"score": 1}


async def call_back(key: str, amount: int, *, epoch: int) -> Identity:
    return {"id": key}


@risk.compensation(reads=["score"], writes=[])
async def withdraw(ctx: Context) -> None:
    assert_type(ctx.undo, Undo)
    for effect in reversed(ctx.undo):
        assert_type(effect, DoneEffect)
        assert_type(effect.result, Value)
        reply = await ctx.take_back(effect, call_back, effect.key, 5, check=lambda *_: NOT_DONE)
        assert_type(reply, Identity | None)


@risk.compensation(name="withdraw_again", reads=[], writes=[])
def withdraw_plainly(ctx: BlockingContext) -> None:
    assert_type(ctx.undo.wrote, Mapping[str, Value])
    for effect in ctx.undo.named("count"):
        assert_type(ctx.take_back(effect, plain_call, 5), int | None)


@risk.step(reads=[], writes=[], compensate=withdraw, pivot=True)
async def can_be_taken_back(ctx: Context) -> None:
    return None


assert_type(risk.plan(), Plan)
assert_type(risk.check(), list[Finding])

with Client(bootstrap_servers="localhost:9092") as client:
    run_id = client.start(risk, {"applicant": {"name": "a"}}, run_id=None)
    assert_type(run_id, str)
    assert_type(client.wait(run_id, timeout="30s"), RunResult)
    assert_type(client.report(run_id, attempt=2).started("verify_identity"), Receipt)
    client.supply(run_id, {"income": 1}, origin="person", timeout=5_000)
    view = client.query(run_id, timeout="5s")
    assert_type(view, RunView)
    assert_type(client.runs(flow="risk-assessment", limit=10), list[RunView])
    assert_type(view.state, RunState | None)
    assert_type(view.context, dict[str, Value] | None)
    assert_type(view.refusal, RunRefused | None)
    assert_type(view.step("score"), StepView)
    assert_type(view.step("score").state, StepState)
    assert_type(view.step("score").fault_point, str)
    assert_type(view.paused_by, str)
    if view.saga is not None:
        assert_type(view.saga, SagaView)
        assert_type(view.saga.cause, str)
    for question in view.questions:
        assert_type(question, QuestionView)
        assert_type(question.answer_by_ms, int)
    for decision in view.decisions:
        assert_type(decision, DecisionView)
        assert_type(decision.decision, DecisionType)

Worker([risk], bootstrap_servers="localhost:9092", concurrency=200).run()


class Account(TypedDict):
    iban: Secret[str]


class Loan(TypedDict):
    applicant: Applicant
    account: Account
    cents: NotRequired[int]


loan = ContextSchema("loan", Loan, version=3, examples={1: [{"cents": 5}]})


@loan.upcast("cents", from_version=1)
def cents(euros: int) -> int:
    return euros * 100


assert_type(cents(1), int)
loan.removed("branch", from_version=2)
loan.unchanged(from_version=2)
lending = Flow("lending", context_schema=loan)


def with_a_schema(client: Client) -> None:
    client.supply("r", {"cents": 5}, origin="ledger", schema=loan)
    with client.report("r", schema=loan) as report:
        report.completed("book", {"cents": 5})
    account: Account = {"iban": "DE1"}
    assert_type(account["iban"], str)


@lending.on_stop
async def close_pool() -> None:
    return None


def close_files() -> None:
    return None


assert_type(lending.on_stop(close_files)(), None)
