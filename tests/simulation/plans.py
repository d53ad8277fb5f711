"""The corpus of runs: shapes of plans, and what each client will do with its run."""

from __future__ import annotations

from random import Random

import msgspec

from dalsegno.schemas.events import RunStarted
from dalsegno.schemas.plan import Plan, RecoverPolicy, RetryPolicy, Risk, StepPlan, UnknownPolicy

pack = msgspec.msgpack.encode

SHAPES: dict[str, dict[str, tuple[str, ...]]] = {
    "one": {"a": ()},
    "pair": {"a": (), "b": ("a",)},
    "chain": {"a": (), "b": ("a",), "c": ("b",), "d": ("c",)},
    "fan": {"a": (), "b": ("a",), "c": ("a",), "d": ("a",)},
    "diamond": {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")},
    "islands": {"a": (), "b": ()},
}


class RunSpec(msgspec.Struct):
    """One run of the world. `valid` is false for plans that must be refused."""

    run_id: str
    started: RunStarted
    effects: dict[str, int]
    valid: bool = True
    early_note: bool = False
    pauses: bool = False
    acknowledged: bool = False

    def step(self, name: str) -> StepPlan:
        return next(step for step in self.started.plan.steps if step.name == name)


def draw_run(rng: Random, number: int, *, trouble: bool) -> RunSpec:
    """A run from the corpus; one in eight is refused when `trouble` is set: a cycle, or a risk
    without a way back or a reason.
    """
    run_id = f"run-{number}"
    shape = SHAPES[rng.choice(list(SHAPES))]
    early_note = trouble and rng.random() < 0.2
    observed = rng.random() < 0.15
    steps = [
        draw_step(rng, name, needs, note=early_note, observed=observed and rng.random() < 0.6)
        for name, needs in shape.items()
    ]
    valid = True
    if trouble and rng.random() < 0.12:
        valid = False
        steps[-1] = rng.choice((spoil_risk, spoil_cycle))(steps[-1])
    longest = sum(step.timeout_ms for step in steps)
    short = trouble and rng.random() < 0.1
    started = RunStarted(
        run_id=run_id,
        source="client",
        reply_to=f"client/{run_id}",
        flow=f"flow-{len(steps)}",
        flow_version=1,
        plan=Plan(steps=tuple(steps)),
        context=pack({"applicant": run_id}),
        ttl_ms=longest + rng.randrange(1_000, 20_000) if short else 7_200_000,
    )
    effects = {step.name: rng.choice((0, 0, 1, 2)) for step in steps}
    return RunSpec(run_id, started, effects, valid, early_note)


def draw_step(
    rng: Random, name: str, needs: tuple[str, ...], *, note: bool, observed: bool
) -> StepPlan:
    # A step may need another without reading what it wrote.
    reads = [f"{need}_out" for need in needs if rng.random() < 0.7]
    if not needs or rng.random() < 0.3:
        reads.append("applicant")
    if note:
        reads.append("note")
    return StepPlan(
        name=name,
        needs=needs,
        reads=tuple(reads),
        writes=(f"{name}_out",),
        depends_on=("bureau",) if rng.random() < 0.3 else (),
        queue="" if observed else "default",
        recover=rng.choice(list(RecoverPolicy)),
        timeout_ms=rng.choice((3_000, 6_000, 12_000)),
        retry=RetryPolicy(
            max_attempts=rng.choice((2, 4)),
            max_infra_attempts=12,
            initial_ms=rng.choice((200, 2_000)),
            max_ms=6_000,
        ),
        unknown=rng.choice(list(UnknownPolicy)[:2]),
    )


def spoil_risk(step: StepPlan) -> StepPlan:
    return msgspec.structs.replace(step, risk=Risk.MONEY, risk_reason="", compensate="")


def spoil_cycle(step: StepPlan) -> StepPlan:
    return msgspec.structs.replace(step, needs=(*step.needs, step.name))
