"""How a saga goes on: which compensation may go, what has been taken back, what comes late.

Rules:

1. A step that has something to take back is `compensating` from the start of the saga on. Its
   compensations go once nothing that depended on it is left; several of one step go side by side.
2. It is `compensated` when all of them have completed with all that is known by then. One that was
   given out before more became known runs again, under the same keys: what its own journal says is
   done is not done again.
   What failed waits for its next try until nothing that came late holds it back.
3. An effect that is intended or confirmed late (by an attempt that had lost its step) is taken back
   like any other: its step is `compensating` again, and what has not begun waits for it.
4. What no compensation can take back is put to a person, after the rest of its step.
"""

from __future__ import annotations

from dalsegno.schemas.outputs import EffectStatus
from dalsegno.schemas.plan import UnknownPolicy
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.escalating import ask
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.saga.looking import (
    BUSY,
    effects_of,
    goes_forward,
    known_of,
    undoing_now,
)
from dalsegno.streams.core.saga.order import hold_again, let_go
from dalsegno.streams.core.saga.planning import WHOLE, Undoing, Unit
from dalsegno.streams.core.saga.state import Undoes
from dalsegno.streams.core.step_table import (
    COMPENSATED,
    COMPENSATING,
    COMPLETED,
    ESCALATED,
    PENDING,
    READY,
    StepInput,
)


class RowHolds:
    """The counts of `order`, kept in the rows of the forward steps."""

    __slots__ = ("_draft",)

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def held(self, place: int) -> int:
        """How many direct dependents hold the step back."""
        return self._draft.peek(place).needs

    def add(self, place: int, by: int) -> None:
        """Changes the count of a step. What of it is out stays out, and waits before it is tried
        again.
        """
        draft = self._draft
        row = draft.row(place)
        row.needs += by
        if by > 0 and row.needs == 1 and row.state in BUSY:
            for unit in undoing_now(draft, place).units:
                draft.row(unit.by).needs = 1

    def busy(self, place: int) -> bool:
        """Whether the step has something left to take back."""
        return self._draft.peek(place).state in BUSY


def release(draft: Draft, place: int) -> None:
    """Nothing holds the step back: its compensations go."""
    undoing = undoing_now(draft, place)
    for unit in undoing.units:
        if draft.peek(unit.by).needs:
            draft.row(unit.by).needs = 0
        if _has_to_run(draft, unit):
            _give(draft, unit)
    _settle(draft, place, undoing)


def compensation_completed(draft: Draft, by: int) -> None:
    """A compensation has completed; its row is `completed` already."""
    undoes = draft.row(by).undoes
    assert undoes is not None, "a compensation runs for a step"
    if draft.peek(undoes.step).needs == 0:
        release(draft, undoes.step)
    else:
        _settle(draft, undoes.step, undoing_now(draft, undoes.step))


def heard_late(draft: Draft, place: int) -> None:
    """The journal of a step has changed while its run is taken back."""
    if draft.head.saga is None or not goes_forward(draft, place):
        return
    undoing = undoing_now(draft, place)
    row = draft.peek(place)
    if row.state in BUSY:
        if row.needs == 0 and undoing.busy:
            release(draft, place)
        return
    open_orphans = _orphans_left(draft, place, undoing)
    if not open_orphans and not any(_has_to_run(draft, unit) for unit in undoing.units):
        return
    row = draft.row(place)
    if row.state is COMPLETED:
        row.closed = StepInput.COMPLETED
    draft.move(place, row, COMPENSATING)
    draft.head.left += 1
    draft.facts = True
    if row.needs == 0:
        hold_again(draft.plan, place, RowHolds(draft))
        release(draft, place)


def taken_back_by_hand(draft: Draft, place: int) -> None:
    """A person has taken back what no compensation of the step could."""
    row = draft.row(place)
    undoing = undoing_now(draft, place)
    row.undoes = Undoes(place, known_of(effects_of(draft, place), undoing.orphans))
    draft.move(place, row, COMPENSATING)
    _settle(draft, place, undoing)


def _has_to_run(draft: Draft, unit: Unit) -> bool:
    """Whether a compensation is not out and has not taken back all that is known."""
    row = draft.peek(unit.by)
    if row.state is PENDING:
        return True
    return row.state is COMPLETED and _known(draft, unit) > _known_then(row)


def _known(draft: Draft, unit: Unit) -> int:
    return known_of(effects_of(draft, unit.step), unit.effects)


def _known_then(row: StepRow) -> int:
    return -1 if row.undoes is None else row.undoes.known


def _give(draft: Draft, unit: Unit) -> None:
    row = draft.row(unit.by)
    # What is known is noted when the handoff is made.
    row.undoes = Undoes(unit.step, _known_then(row))
    draft.move(unit.by, row, READY)
    if draft.steps[unit.step].unknown is not UnknownPolicy.PERSON:
        return
    effects = effects_of(draft, unit.step)
    unknown = [at for at in unit.effects if effects[at].entry.status is EffectStatus.UNKNOWN]
    if unknown:
        names = ", ".join(sorted({effects[at].entry.effect for at in unknown}))
        detail = (
            f"to take back {draft.steps[unit.step].name}: it is unknown whether {names} was done"
        )
        ask(draft, unit.by, row, reason="unknown_effect", detail=detail)


def _orphans_left(draft: Draft, place: int, undoing: Undoing) -> bool:
    if not undoing.orphans:
        return False
    return known_of(effects_of(draft, place), undoing.orphans) > _known_then(draft.peek(place))


def _settle(draft: Draft, place: int, undoing: Undoing) -> None:
    """The step is compensated once everything of it is; the steps behind it may go then."""
    row = draft.row(place)
    if row.state is not COMPENSATING:
        return
    for unit in undoing.units:
        if draft.peek(unit.by).state is not COMPLETED or _has_to_run(draft, unit):
            return
    if _orphans_left(draft, place, undoing):
        ask(draft, place, row, reason="no_way_back", detail=_lost(draft, place, undoing))
        return
    draft.move(place, row, COMPENSATED)
    draft.head.left -= 1
    draft.facts = True
    if row.needs == 0:
        for free in let_go(draft.plan, place, RowHolds(draft)):
            if draft.peek(free).state is not ESCALATED:
                release(draft, free)


def _lost(draft: Draft, place: int, undoing: Undoing) -> str:
    effects = effects_of(draft, place)
    names = [
        "the step itself" if at == WHOLE else effects[at].entry.effect for at in undoing.orphans
    ]
    named = ", ".join(sorted(set(names)))
    return f"no compensation of the plan takes back: {named}. Take it back by hand, then skip"
