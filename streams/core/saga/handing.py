"""What a compensation is given beside its own inputs: what there is to take back."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.outputs import UndoEntry
from dalsegno.streams.core.bounds import entry_bytes
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.saga.looking import effects_of, known_of, past_of, undoing_now
from dalsegno.streams.core.saga.state import Undoes


class Taking(msgspec.Struct, frozen=True, gc=False):
    """`step` is taken back: its effects, and what the context holds of what it may write.

    `wrote` is a MessagePack map of `fields`. `known`: how much is known of the effects (see
    `Undoes`).
    """

    place: int
    step: str
    completed: bool
    effects: tuple[UndoEntry, ...]
    wrote: bytes
    known: int
    fields: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """About as much as it adds to a handoff."""
        size = len(self.wrote) + len(self.step)
        return size + sum(entry_bytes(entry) + len(entry.undo_input) for entry in self.effects)

    def noted(self) -> Undoes:
        """What the row of the compensation remembers of it."""
        return Undoes(self.place, self.known)


NOTHING: Final = Taking(place=-1, step="", completed=False, effects=(), wrote=b"", known=0)


def what_to_take_back(draft: Draft, by: int, row: StepRow) -> Taking:
    """What the compensation at `by` has to take back, by what is known now."""
    undoes = row.undoes
    assert undoes is not None, "a compensation runs for a step"
    place = undoes.step
    step = draft.steps[place]
    effects = effects_of(draft, place)
    ats = next(unit.effects for unit in undoing_now(draft, place).units if unit.by == by)
    entries = tuple(
        UndoEntry(
            effect=entry.effect,
            occurrence=entry.occurrence,
            key=entry.key,
            status=entry.status,
            epoch=entry.epoch,
            result=entry.result,
            undo_input=effects[at].undo_input,
        )
        for at in ats
        for entry in (effects[at].entry,)
    )
    context = draft.context
    fields = [name for name in step.writes + step.may_write if not context.missing((name,))]
    return Taking(
        place,
        step.name,
        past_of(draft, place, draft.peek(place)).completed,
        entries,
        context.pack(fields) if fields else b"",
        known_of(effects, ats),
        tuple(fields),
    )
