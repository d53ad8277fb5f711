"""The flow: seven steps, each an effect at one service.

identity → bureau → data validation → (income, fraud) → scoring → decision
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from dalsegno.client import Context, Flow, Invalid, Transient
from examples.calling import Services

risk = Flow("risk-control", version=1, ttl="3h", secrets=["identity"])


def _url(service: str) -> str:
    return os.environ["RISK_CONTROL_" + service.upper().replace("-", "_") + "_URL"]


services = Services(_url, timeout_s=5)
risk.on_stop(services.close)


async def call(
    service: str, facts: Mapping[str, object], *, key: str, epoch: int
) -> dict[str, object]:
    """Ask a service once under `key`. Raises `DependencyDown` when it cannot be reached."""
    applicant = facts["applicant"]
    if not isinstance(applicant, Mapping):
        raise Invalid("the applicant must be a map")
    body = {"application": applicant["application"], "facts": facts}
    try:
        return await services.post(service, "", body, key=key, epoch=epoch)
    except Transient as refused:
        raise Invalid(str(refused)) from refused


async def _ask(ctx: Context, service: str, *fields: str) -> dict[str, object]:
    facts = {field: ctx[field] for field in ("applicant", *fields)}
    answer: dict[str, object] = await ctx.effect("ask", call, service, facts)
    return answer


@risk.step(reads=["applicant"], writes=["identity"], depends_on=["identity"], timeout="20s")
async def verify_identity(ctx: Context) -> dict[str, object]:
    return {"identity": await _ask(ctx, "identity")}


@risk.step(
    needs=[verify_identity],
    reads=["applicant", "identity"],
    writes=["bureau"],
    depends_on=["bureau"],
    timeout="20s",
)
async def fetch_bureau(ctx: Context) -> dict[str, object]:
    return {"bureau": await _ask(ctx, "bureau", "identity")}


@risk.step(
    needs=[fetch_bureau],
    reads=["applicant", "bureau"],
    writes=["validated"],
    depends_on=["data-validation"],
    timeout="20s",
)
async def validate_data(ctx: Context) -> dict[str, object]:
    return {"validated": await _ask(ctx, "data-validation", "bureau")}


@risk.step(
    needs=[validate_data],
    reads=["applicant", "validated"],
    writes=["income"],
    depends_on=["income"],
    timeout="20s",
)
async def prove_income(ctx: Context) -> dict[str, object]:
    return {"income": await _ask(ctx, "income", "validated")}


@risk.step(
    needs=[validate_data],
    reads=["applicant", "validated"],
    writes=["fraud"],
    depends_on=["fraud"],
    timeout="20s",
)
async def check_fraud(ctx: Context) -> dict[str, object]:
    return {"fraud": await _ask(ctx, "fraud", "validated")}


@risk.step(
    needs=[prove_income, check_fraud],
    reads=["applicant", "validated", "income", "fraud"],
    writes=["score"],
    depends_on=["scoring"],
    timeout="20s",
)
async def score(ctx: Context) -> dict[str, object]:
    return {"score": await _ask(ctx, "scoring", "validated", "income", "fraud")}


@risk.step(
    needs=[score],
    reads=["applicant", "score"],
    writes=["decision"],
    depends_on=["decision"],
    timeout="20s",
)
async def decide(ctx: Context) -> dict[str, object]:
    return {"decision": await _ask(ctx, "decision", "score")}
