"""Keeps account of a run's damage within a unit: what is hurt, held, mended, and what remains."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.recovery.damage import Damage
from dalsegno.streams.core.recovery.holding import Repair
from dalsegno.streams.core.recovery.ranks import rank_of, what_is_left
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.runstate import DONE
from dalsegno.streams.core.step_table import FINAL_STEPS, HELD

_DIGEST_BYTES: Final = 8
_NONE: Final = Repair()


def hurt(draft: Draft, place: int, row: StepRow, *, lost: bool = True) -> None:
    """An attempt of the step failed or was lost, and the step is to have another.

    `lost`: it counts; not one that nobody started.
    """
    row.repair = msgspec.structs.replace(_ranked(draft, place, row), hurt=True)
    damage = _damage(draft)
    if lost:
        draft.head.damage = msgspec.structs.replace(damage, lost=damage.lost + 1)


def hold_back(draft: Draft, place: int, row: StepRow, by: str) -> None:
    """The step waits in the line `by` until it is its turn."""
    row.repair = msgspec.structs.replace(_ranked(draft, place, row), by=by)
    _damage(draft)
    if row.state is not HELD:
        draft.move(place, row, HELD)
    else:
        draft.held.append(place)
    draft.head.held_by = by


def account(draft: Draft) -> str:
    """Settles the unit's damage. Returns what its transition says of it, or an empty text.

    Only for a run that is damaged. Walks the rows that the unit has touched, not those of the run.
    """
    damage: Damage | None = draft.head.damage
    assert damage is not None, "asked only of damaged runs"
    known = draft.run.head.damage
    before = draft.run.rows
    count, work = damage.hurt, damage.work_ms
    for place, row in draft.rows.items():
        old = before[place] if place < len(before) else None
        _mend(row)
        count += (row.repair is not None) - (old is not None and old.repair is not None)
        if row.state in FINAL_STEPS and old is not None and old.state not in FINAL_STEPS:
            work -= _usual(draft, place)
    if count <= 0:
        draft.head.damage = None
        return "" if not damage.lost else damage.turned_out(draft.now.log_ms)
    draft.head.damage = msgspec.structs.replace(damage, hurt=count, work_ms=max(0, work))
    if known is None and damage.lost:
        kept = draft.head.tally[DONE]
        return damage.followed(kept, len(draft.plan.order) - kept)
    return ""


def _mend(row: StepRow) -> None:
    repair = row.repair
    if repair is None:
        return
    if row.state in FINAL_STEPS:
        row.repair = None
    elif row.state is not HELD and repair.by:
        kept = repair.hurt or repair.supplies
        row.repair = msgspec.structs.replace(repair, by="") if kept else None


def _usual(draft: Draft, place: int) -> int:
    return draft.now.recovery.estimates.usual_ms(draft.head.flow, draft.steps[place])


def _ranked(draft: Draft, place: int, row: StepRow) -> Repair:
    """What is known of the step, with its rank: only what stands behind it is looked at."""
    repair = row.repair or _NONE
    if repair.rank_ms:
        return repair
    usual = _usual(draft, place)
    dependents = draft.plan.graph.dependents
    rank = rank_of(place, dependents, lambda each: _usual(draft, each))
    return msgspec.structs.replace(repair, rank_ms=rank, usual_ms=usual)


def _damage(draft: Draft) -> Damage:
    damage: Damage = draft.head.damage or _assess(draft)
    draft.head.damage = damage
    return damage


def _assess(draft: Draft) -> Damage:
    """Looks at the whole run, once per damage."""
    plan = draft.plan
    usual = draft.now.recovery.estimates.of(draft.head.flow, draft.steps)
    finished = [draft.peek(place).state in FINAL_STEPS for place in range(len(draft.steps))]
    left = what_is_left(plan.order, plan.graph.dependents, usual, finished)
    return Damage(
        draft.now.log_ms,
        left.work_ms,
        left.path_ms,
        plan=followed_digest(plan.digest, left.ranks),
        predicted_ms=left.path_ms,
    )


def followed_digest(plan_digest: bytes, ranks: Sequence[int]) -> bytes:
    """Names the plan that is followed: the run's plan, and what is left of it in which order."""
    text = ",".join(map(str, ranks)).encode()
    return blake2b(plan_digest + text, digest_size=_DIGEST_BYTES).digest()
