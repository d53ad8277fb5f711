"""What a run has to take back, and in which order: a pure function of plan, steps and journals.

1. What a completed step did is taken back by the step that its `compensate` names.
2. What a step did that never completed is what its journal says: a confirmed effect was done, an
   unknown one may have been. A step that intended nothing did nothing.
3. An effect goes to the compensation that its intent registered (`undo`), or else to its step's.
   Without either it is kept: nothing says how it could be taken back.
4. A compensation takes back one step. An effect that names no compensation of the plan, or one that
   belongs to another step, is an orphan: a person takes it back.
5. A step is taken back after all that depended on it, directly or not, has been. Steps that do not
   depend on each other are taken back side by side.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

import msgspec

from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core.plan import CompiledPlan
from dalsegno.streams.core.runstate import Effect

# In the place of an effect: the step as a whole.
WHOLE: Final = -1


class StepPast(msgspec.Struct, frozen=True, gc=False):
    """What is known of a forward step: whether it completed, and its journal."""

    completed: bool = False
    effects: tuple[Effect, ...] = ()


class Unit(msgspec.Struct, frozen=True, gc=False):
    """One compensation to run: the step at `by` takes back effects of the step at `step`.

    `effects` are positions in that step's journal; there may be none when the step completed.
    """

    step: int
    by: int
    effects: tuple[int, ...] = ()


class Undoing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What becomes of one step: who takes back what, what no one can, what is kept.

    `orphans` and `kept` are positions in the step's journal, `orphans` also `WHOLE`.
    """

    units: tuple[Unit, ...] = ()
    orphans: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()

    @property
    def busy(self) -> bool:
        """Whether there is anything to take back."""
        return bool(self.units or self.orphans)


_NOTHING: Final = Undoing()


class UndoPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The whole of it. `of` has the steps that did anything; `held[i]` counts the direct dependents
    that step i waits for before it is taken back.
    """

    of: Mapping[int, Undoing]
    held: tuple[int, ...]

    @property
    def busy(self) -> frozenset[int]:
        """Steps with anything to take back."""
        return frozenset(place for place, undoing in self.of.items() if undoing.busy)

    @property
    def units(self) -> tuple[Unit, ...]:
        """Every compensation to run, in the order of the plan."""
        return tuple(unit for place in sorted(self.of) for unit in self.of[place].units)


def owners(plan: CompiledPlan) -> dict[int, int]:
    """Which step each compensation belongs to by declaration; the first one that names it."""
    found: dict[int, int] = {}
    for place, step in enumerate(plan.steps):
        if step.compensate:
            found.setdefault(plan.index[step.compensate], place)
    return found


def undoing_of(plan: CompiledPlan, place: int, past: StepPast, claimed: dict[int, int]) -> Undoing:
    """What one step has to have taken back.

    `claimed`: the step that each compensation belongs to. One that belongs to none and that an
    effect of this step names is added.
    """
    step = plan.steps[place]
    own = plan.index.get(step.compensate) if step.compensate else None
    if own is not None and claimed.get(own, place) != place:
        own = None
    by: dict[int, list[int]] = {}
    orphans: list[int] = []
    kept: list[int] = []
    if past.completed and own is not None:
        by[own] = []
    elif past.completed and step.compensate:
        orphans.append(WHOLE)
    for at, effect in enumerate(past.effects):
        if effect.undo:
            target = plan.index.get(effect.undo)
            if target is None or plan.steps[target].role is not StepRole.COMPENSATION:
                orphans.append(at)
            elif claimed.setdefault(target, place) == place:
                by.setdefault(target, []).append(at)
            else:
                orphans.append(at)
        elif own is not None:
            by.setdefault(own, []).append(at)
        elif step.compensate:
            orphans.append(at)
        else:
            kept.append(at)
    if not by and not orphans and not kept:
        return _NOTHING
    return Undoing(
        units=tuple(Unit(place, target, tuple(ats)) for target, ats in sorted(by.items())),
        orphans=tuple(orphans),
        kept=tuple(kept),
    )


def plan_undo(plan: CompiledPlan, pasts: Mapping[int, StepPast]) -> UndoPlan:
    """What the run has to take back. `pasts`: of the forward steps that have one.

    Time is linear in steps, needs and effects.
    """
    claimed = owners(plan)
    of: dict[int, Undoing] = {}
    for place in sorted(pasts):
        undoing = undoing_of(plan, place, pasts[place], claimed)
        if undoing is not _NOTHING:
            of[place] = undoing
    busy = {place for place, undoing in of.items() if undoing.busy}
    return UndoPlan(of=of, held=held_back(plan, busy))


def held_back(plan: CompiledPlan, busy: Container[int]) -> tuple[int, ...]:
    """For every step: how many of its direct dependents hold it back.

    A dependent does so while it is `busy`, or is itself held back.
    """
    held = [0] * len(plan.steps)
    for place in reversed(plan.order):
        if place in busy or held[place]:
            for need in plan.needs[place]:
                held[need] += 1
    return tuple(held)
