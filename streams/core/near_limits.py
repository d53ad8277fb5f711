"""Contexts that come near a limit of the policy, while there is still room."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.streams.core.context_field import Field
from dalsegno.streams.core.context_view import View
from dalsegno.streams.core.runstate import Run
from dalsegno.streams.core.step_table import FINAL_STEPS

NEAR_PERCENT: Final = 80
"""From this share of a limit on, it is near."""

Limit: TypeAlias = Literal["inline_bytes_max", "context_bytes_max", "dispatch_bytes_max"]


class NearLimit(msgspec.Struct, frozen=True, gc=False):
    """A run of `flow` is near `limit`: by `field`, or by it more than by any other."""

    flow: str
    limit: Limit
    field: str


def near_limits(run: Run, policy: Policy) -> tuple[NearLimit, ...]:
    """Which limits the run is near. Costs a comparison while its context is small.

    A value is near `inline_bytes_max`, the context `context_bytes_max`, or what a step still to
    come reads `dispatch_bytes_max`.
    """
    context = run.context
    least = min(policy.inline_bytes_max, policy.context_bytes_max, policy.dispatch_bytes_max)
    if not _near(context.size_bytes, least):
        return ()
    sizes = {name: _size(context, name) for name in context.names()}
    flow = run.head.flow
    found = [
        NearLimit(flow, "inline_bytes_max", name)
        for name, size in sizes.items()
        if _near(size, policy.inline_bytes_max)
    ]
    if _near(context.size_bytes, policy.context_bytes_max):
        found.append(NearLimit(flow, "context_bytes_max", _largest(sizes, sizes)))
    if not _near(context.size_bytes, policy.dispatch_bytes_max):
        # No step reads more than all: so most writes to a large context look at no step.
        return tuple(found)
    reads = {
        step.reads
        for step, row in zip(run.entry.steps, run.rows, strict=True)
        if row.state not in FINAL_STEPS
    }
    near = {
        _largest(sizes, names)
        for names in reads
        if _near(sum(sizes.get(name, 0) for name in names), policy.dispatch_bytes_max)
    }
    found += [NearLimit(flow, "dispatch_bytes_max", name) for name in sorted(near)]
    return tuple(found)


def _near(size: int, limit: int) -> bool:
    return size * 100 >= limit * NEAR_PERCENT


def _size(view: View, name: str) -> int:
    """Packed bytes of a field's value."""
    state = view.get(name)
    return state.size if isinstance(state, Field) else len(state or b"")


def _largest(sizes: dict[str, int], names: tuple[str, ...] | dict[str, int]) -> str:
    return max(names, key=lambda name: sizes.get(name, 0), default="")
