"""A plan beyond the message limit travels in parts: `RunStarted` with the first steps, then
`PlanExtended`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dalsegno.schemas import codec
from dalsegno.schemas.events import PlanExtended, RunEvent, RunStarted
from dalsegno.schemas.plan import StepPlan

PART_BYTES_MAX = 700_000
"""Below the broker's default limit of 1 MiB per record, with room for the context's own growth."""


def in_parts(started: RunStarted, bytes_max: int = PART_BYTES_MAX) -> Iterator[RunEvent]:
    """The event itself if it fits; else the same plan in parts, in order, the last one marked.

    Who sends it is not measured: else a start that another process sends again would be cut at
    other places, and be another start.
    """
    bare = msgspec.structs.replace(started, source="", reply_to="", sent_at_ms=0)
    if len(codec.encode(bare)) <= bytes_max:
        yield started
        return
    empty = _without_steps(started)
    groups = list(_groups(bare, bytes_max))
    yield msgspec.structs.replace(
        empty, plan=msgspec.structs.replace(started.plan, steps=groups[0]), more=len(groups) > 1
    )
    for number, steps in enumerate(groups[1:], start=1):
        yield _part(started, number, steps, last=number == len(groups) - 1)


def _groups(started: RunStarted, bytes_max: int) -> Iterator[tuple[StepPlan, ...]]:
    """Steps in order, as many together as fit; the first group shares its record with the
    context.
    """
    room = bytes_max - len(codec.encode(_without_steps(started)))
    group: list[StepPlan] = []
    frame = len(codec.encode(_part(started, 0, (), last=True)))
    for step in started.plan.steps:
        size = len(codec.encode(_part(started, 0, (step,), last=True))) - frame
        if group and size > room:
            yield tuple(group)
            group, room = [], bytes_max - frame
        group.append(step)
        room -= size
    yield tuple(group)


def _without_steps(started: RunStarted) -> RunStarted:
    plan = msgspec.structs.replace(started.plan, steps=())
    return msgspec.structs.replace(started, plan=plan, more=True)


def _part(
    started: RunStarted, number: int, steps: tuple[StepPlan, ...], *, last: bool
) -> PlanExtended:
    """The id is the part's number: a start that is sent again sends the same parts."""
    return PlanExtended(
        run_id=started.run_id,
        source=started.source,
        sent_at_ms=started.sent_at_ms,
        reply_to=started.reply_to,
        extension_id=f"part-{number}",
        steps=steps,
        last=last,
    )
