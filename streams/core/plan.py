"""A plan, checked and compiled once, and then shared by every run that follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import chain
from types import MappingProxyType
from typing import Final

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import MergeRule, Plan, StepPlan, StepRole
from dalsegno.streams.core.plan_checks import check_limits, check_names, check_roles, check_rules
from dalsegno.streams.core.plan_errors import PlanRefused
from dalsegno.streams.core.plan_graph import Graph, build_graph, extend_graph
from dalsegno.streams.core.plan_overlap import check_overlaps
from dalsegno.streams.core.plan_pack import (
    before_of,
    pack_more,
    pack_plan,
    unpack_more,
    unpack_plan,
)
from dalsegno.streams.core.plan_sharing import Sharing

__all__ = ["CompiledPlan", "PlanRefused", "compile_plan"]

_PATH_NAMES_SHOWN: Final = 12
# A plan is one record of the changelog; parts may come for as long as the run lives.
PLAN_BYTES_MAX: Final = 8_388_608


class CompiledPlan(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A valid plan with everything that the fold looks up. Steps are known by their position.

    * `digest`: SHA-256 of `pack()`; plans that are equal and came in the same parts have the same.
    * `before`: digest of the plan that this one extends (empty: none), by its last `added` steps.
    * `packed_bytes`: length of `pack()` of this plan and of all that it extends.
    * `steps[i]`: the step as declared; `index[name]` its position.
    * `needs[i]`, `dependents[i]`: positions that step i waits for, and that wait for step i.
    * `needs_count[i]`: how many steps step i waits for.
    * `order`: positions of the forward steps, each after all that it needs.
    * `roots`: forward steps that wait for nothing.
    * `forward_count`: how many steps make the run complete.
    * `longest_path_ms`: the largest sum of timeouts along a path of needs.
    * `writes[i]`: fields that step i may change (`writes` and `may_write`).
    * `sharing`: what the next extension is checked against; None until there was one.
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
    packed_bytes: int
    before: bytes = b""
    added: int = 0
    sharing: Sharing | None = None

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

        Positions of the steps that were there before do not change. Only the new steps are checked
        and packed; of the old ones no more than references are copied. Raises `PlanRefused`.
        """
        old = self.steps
        check_names(steps, policy, self.index, len(old))
        index = {**self.index, **{step.name: i for i, step in enumerate(steps, len(old))}}
        whole = (*old, *steps)

        def role_of(name: str) -> StepRole | None:
            place = index.get(name)
            return None if place is None else whole[place].role

        check_roles(steps, role_of)
        check_limits(steps, ttl_ms)
        graph, order = extend_graph(self.graph, index, steps)
        _check_ttl(graph, whole, ttl_ms)
        sharing = self.sharing or Sharing().extend(old, graph.needs, self.order, self.merges)
        sharing = sharing.extend(whole, graph.needs, order, self.merges)
        packed = pack_more(self.digest, steps)
        return msgspec.structs.replace(
            self,
            plan=msgspec.structs.replace(self.plan, steps=whole),
            digest=sha256(packed).digest(),
            index=MappingProxyType(index),
            graph=graph,
            writes=(*self.writes, *map(_writes, steps)),
            forward_count=self.forward_count + len(order),
            packed_bytes=_check_bytes(self.packed_bytes + len(packed)),
            before=self.digest,
            added=len(steps),
            sharing=sharing,
        )

    def pack(self) -> bytes:
        """The canonical bytes that `digest` is of: all, or the steps behind the plan `before`."""
        if self.before:
            return pack_more(self.before, self.steps[-self.added :])
        return pack_plan(self.plan)

    @classmethod
    def unpack(cls, data: bytes, *more: bytes) -> CompiledPlan:
        """Reads back what `pack` wrote of a plan, and of each extension since, in their order.

        The policy is not asked again: it may have changed since.
        """
        plan = unpack_plan(data)
        if not more:
            return _compile(plan, data, build_graph(plan.steps))
        parts = [unpack_more(part) for part in more]
        steps = (*plan.steps, *chain.from_iterable(parts))
        whole = _compile(msgspec.structs.replace(plan, steps=steps), more[-1], build_graph(steps))
        return msgspec.structs.replace(
            whole,
            packed_bytes=len(data) + sum(map(len, more)),
            before=before_of(more[-1]),
            added=len(parts[-1]),
        )


def compile_plan(plan: Plan, *, policy: Policy, ttl_ms: int) -> CompiledPlan:
    """Checks a plan against the policy and the run's time to live, and compiles it.

    Time is linear in steps, needs and declared fields; nothing recurses. Raises `PlanRefused` with
    one of the codes that `plan_errors` lists.
    """
    check_rules(plan, check_names(plan.steps, policy, (), 0))
    check_roles(plan.steps, {step.name: step.role for step in plan.steps}.get)
    check_limits(plan.steps, ttl_ms)
    graph = build_graph(plan.steps)
    _check_ttl(graph, plan.steps, ttl_ms)
    check_overlaps(plan, graph)
    packed = pack_plan(plan)
    _check_bytes(len(packed))
    return _compile(plan, packed, graph)


def _check_ttl(graph: Graph, steps: Sequence[StepPlan], ttl_ms: int) -> None:
    if graph.longest_path_ms > ttl_ms:
        path = graph.longest_path(steps)
        shown = " > ".join(path[:_PATH_NAMES_SHOWN]) + (
            " > …" if len(path) > _PATH_NAMES_SHOWN else ""
        )
        raise PlanRefused(
            "ttl_too_short",
            path,
            f"the timeouts along {shown} add up to {graph.longest_path_ms} ms and the run's time to"
            f" live is {ttl_ms} ms; raise the time to live or shorten the timeouts",
        )


def _check_bytes(size: int) -> int:
    if size > PLAN_BYTES_MAX:
        detail = f"{size} bytes with all its parts; {PLAN_BYTES_MAX} are allowed"
        raise PlanRefused("plan_too_large", (), detail)
    return size


def _writes(step: StepPlan) -> frozenset[str]:
    return frozenset((*step.writes, *step.may_write))


def _compile(plan: Plan, packed: bytes, graph: Graph) -> CompiledPlan:
    return CompiledPlan(
        plan=plan,
        digest=sha256(packed).digest(),
        index=MappingProxyType({step.name: i for i, step in enumerate(plan.steps)}),
        graph=graph,
        writes=tuple(map(_writes, plan.steps)),
        merges=MappingProxyType({merge.field: merge.rule for merge in plan.merges}),
        secrets=frozenset(plan.secrets),
        forward_count=sum(step.role is StepRole.FORWARD for step in plan.steps),
        packed_bytes=len(packed),
    )
