"""A plan, checked and compiled once, and then shared by every run that follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Final

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import MergeRule, Plan, StepPlan, StepRole
from dalsegno.streams.core.plan_checks import check_limits, check_names, check_roles
from dalsegno.streams.core.plan_errors import PlanRefused
from dalsegno.streams.core.plan_graph import Graph, build_graph
from dalsegno.streams.core.plan_overlap import check_overlaps
from dalsegno.streams.core.plan_pack import pack_plan, unpack_plan

__all__ = ["CompiledPlan", "PlanRefused", "compile_plan"]

_PATH_NAMES_SHOWN: Final = 12
# A plan is one record of the changelog; parts may come for as long as the run lives.
PLAN_BYTES_MAX: Final = 8_388_608


class CompiledPlan(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A valid plan with everything that the fold looks up. Steps are known by their position.

    * `digest`: SHA-256 of the packed plan; equal plans have equal digests.
    * `steps[i]`: the step as declared; `index[name]` its position.
    * `needs[i]`, `dependents[i]`: positions that step i waits for, and that wait for step i.
    * `needs_count[i]`: how many steps step i waits for.
    * `order`: positions of the forward steps, each after all that it needs.
    * `roots`: forward steps that wait for nothing.
    * `forward_count`: how many steps make the run complete.
    * `longest_path_ms`: the largest sum of timeouts along a path of needs.
    * `writes[i]`: fields that step i may change (`writes` and `may_write`).
    * `merges`: merge rule by field. `secrets`: fields whose values are masked.
    """

    plan: Plan
    digest: bytes
    index: Mapping[str, int]
    graph: Graph
    writes: tuple[frozenset[str], ...]
    merges: Mapping[str, MergeRule]
    secrets: frozenset[str]
    forward_count: int

    @property
    def steps(self) -> tuple[StepPlan, ...]:
        return self.plan.steps

    @property
    def needs(self) -> tuple[tuple[int, ...], ...]:
        return self.graph.needs

    @property
    def dependents(self) -> tuple[tuple[int, ...], ...]:
        return self.graph.dependents

    @property
    def needs_count(self) -> tuple[int, ...]:
        return self.graph.needs_count

    @property
    def order(self) -> tuple[int, ...]:
        return self.graph.order

    @property
    def roots(self) -> tuple[int, ...]:
        return self.graph.roots

    @property
    def longest_path_ms(self) -> int:
        return self.graph.longest_path_ms

    def extend(self, steps: Sequence[StepPlan], *, policy: Policy, ttl_ms: int) -> CompiledPlan:
        """The plan with `steps` behind its own; this one stays as it is.

        Positions of the steps that were there before do not change. Raises `PlanRefused`.
        """
        if not steps:
            raise PlanRefused("no_steps", (), "an extension needs at least one step")
        longer = msgspec.structs.replace(self.plan, steps=(*self.plan.steps, *steps))
        return compile_plan(longer, policy=policy, ttl_ms=ttl_ms)

    def pack(self) -> bytes:
        """The canonical bytes that `digest` is of."""
        return pack_plan(self.plan)

    @classmethod
    def unpack(cls, data: bytes) -> CompiledPlan:
        """Reads back what `pack` wrote.

        The policy is not asked again: it may have changed since.
        """
        plan = unpack_plan(data)
        return _compile(plan, data, build_graph(plan.steps))


def compile_plan(plan: Plan, *, policy: Policy, ttl_ms: int) -> CompiledPlan:
    """Checks a plan against the policy and the run's time to live, and compiles it.

    Time is linear in steps, needs and declared fields; nothing recurses. Raises `PlanRefused` with
    one of the codes that `plan_errors` lists.
    """
    check_names(plan, policy)
    check_roles(plan)
    check_limits(plan, ttl_ms)
    graph = build_graph(plan.steps)
    if graph.longest_path_ms > ttl_ms:
        path = graph.longest_path(plan.steps)
        shown = " > ".join(path[:_PATH_NAMES_SHOWN]) + (
            " > …" if len(path) > _PATH_NAMES_SHOWN else ""
        )
        raise PlanRefused(
            "ttl_too_short",
            path,
            f"the timeouts along {shown} add up to {graph.longest_path_ms} ms and the run's time to"
            f" live is {ttl_ms} ms; raise the time to live or shorten the timeouts",
        )
    check_overlaps(plan, graph)
    packed = pack_plan(plan)
    if len(packed) > PLAN_BYTES_MAX:
        detail = f"{len(packed)} bytes with all its parts; {PLAN_BYTES_MAX} are allowed"
        raise PlanRefused("plan_too_large", (), detail)
    return _compile(plan, packed, graph)


def _compile(plan: Plan, packed: bytes, graph: Graph) -> CompiledPlan:
    return CompiledPlan(
        plan=plan,
        digest=sha256(packed).digest(),
        index=MappingProxyType({step.name: i for i, step in enumerate(plan.steps)}),
        graph=graph,
        writes=tuple(frozenset((*step.writes, *step.may_write)) for step in plan.steps),
        merges=MappingProxyType({merge.field: merge.rule for merge in plan.merges}),
        secrets=frozenset(plan.secrets),
        forward_count=sum(step.role is StepRole.FORWARD for step in plan.steps),
    )
