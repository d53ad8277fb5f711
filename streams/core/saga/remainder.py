"""What a saga has taken back, what is left of it, and why: exact, by step and effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from dalsegno.schemas.outputs import EffectStatus, StepState
from dalsegno.streams.core.plan import CompiledPlan
from dalsegno.streams.core.saga.planning import WHOLE, StepPast, UndoPlan

# Names that a text shows of each kind; the rest is counted.
_SHOWN: Final = 12


class Part(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing to take back. `effects` are keys; empty when a step is taken back as a whole.

    `by`: the compensation, or empty where there is none. `state`: of that compensation's step.
    """

    step: str
    by: str
    state: StepState | None
    effects: tuple[str, ...] = ()
    unknown: int = 0


class Remainder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`undone` is taken back. `going` will be, by the service. `stuck` waits for a person.

    `kept` lists effects that nothing says how to take back.
    """

    undone: tuple[Part, ...] = ()
    going: tuple[Part, ...] = ()
    stuck: tuple[Part, ...] = ()
    kept: tuple[Part, ...] = ()

    @property
    def left(self) -> tuple[Part, ...]:
        """All that is not taken back."""
        return self.stuck + self.going

    def text(self) -> str:
        """One plain line, bounded."""
        said = (
            ("undone", self.undone),
            ("not undone, waits for a person", self.stuck),
            ("not undone yet", self.going),
            ("kept, no compensation declared", self.kept),
        )
        return "; ".join(f"{what}: {_names(parts)}" for what, parts in said if parts)


def _names(parts: tuple[Part, ...]) -> str:
    names = [part.step for part in parts[:_SHOWN]]
    if len(parts) > _SHOWN:
        names.append(f"{len(parts) - _SHOWN} more")
    return ", ".join(names)


_STUCK: Final = frozenset(
    {StepState.ESCALATED, StepState.MISSING_INFO, StepState.AWAITING_APPROVAL}
)


def remainder(
    plan: CompiledPlan,
    pasts: Mapping[int, StepPast],
    undo: UndoPlan,
    state_of: Callable[[int], StepState],
) -> Remainder:
    """Sorts everything that had to be taken back by what has become of it."""
    undone: list[Part] = []
    going: list[Part] = []
    stuck: list[Part] = []
    kept: list[Part] = []
    for place in sorted(undo.of):
        undoing, effects = undo.of[place], pasts[place].effects

        def part(by: int | None, ats: tuple[int, ...], place: int = place) -> Part:
            entries = [pasts[place].effects[at].entry for at in ats if at != WHOLE]
            return Part(
                step=plan.steps[place].name,
                by="" if by is None else plan.steps[by].name,
                state=None if by is None else state_of(by),
                effects=tuple(entry.key for entry in entries),
                unknown=sum(entry.status is EffectStatus.UNKNOWN for entry in entries),
            )

        for unit in undoing.units:
            found = part(unit.by, unit.effects)
            if found.state in {StepState.COMPLETED, StepState.SKIPPED}:
                undone.append(found)
            else:
                (stuck if found.state in _STUCK else going).append(found)
        if undoing.orphans:
            by_hand = state_of(place) is StepState.COMPENSATED
            (undone if by_hand else stuck).append(part(None, undoing.orphans))
        if undoing.kept and effects:
            kept.append(part(None, undoing.kept))
    return Remainder(undone=tuple(undone), going=tuple(going), stuck=tuple(stuck), kept=tuple(kept))
