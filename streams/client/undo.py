"""What a compensation sees of the step that it takes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from dalsegno.schemas import values
from dalsegno.schemas.outputs import EffectStatus, Handoff, UndoEntry
from dalsegno.schemas.values import Value
from dalsegno.streams.client.context_versions import read_fields
from dalsegno.streams.client.large import INLINE, Large
from dalsegno.streams.client.schema import ContextSchema


@dataclass(frozen=True, slots=True)
class DoneEffect:
    """An effect of the step that is taken back: it was done, or it may have been.

    `done`: the step has said so, and `result` is what it returned; otherwise nobody knows. `key`:
    the idempotency key that it was done under; by it the receiver knows what to take back.
    `input`: what `undo_input=` of `ctx.effect` left. `epoch`: of the attempt that reported it.
    """

    name: str
    occurrence: int
    key: str
    epoch: int
    done: bool
    result: Value = None
    input: Value = None


class Undo(Sequence[DoneEffect]):
    """Effects to take back, in the order in which the step intended them.

    `step`: its name. `completed`: whether it had completed, or died or failed on the way. `wrote`:
    what the context holds in the fields that it may write; empty if it did not complete.
    """

    def __init__(
        self,
        step: str,
        effects: Sequence[DoneEffect] = (),
        wrote: Mapping[str, Value] | None = None,
        *,
        completed: bool = False,
    ) -> None:
        self.step = step
        self.completed = completed
        self.wrote: Mapping[str, Value] = dict(wrote or {})
        self._effects = tuple(effects)

    @overload
    def __getitem__(self, index: int) -> DoneEffect: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[DoneEffect]: ...
    def __getitem__(self, index: int | slice) -> DoneEffect | Sequence[DoneEffect]:
        return self._effects[index]

    def __len__(self) -> int:
        return len(self._effects)

    def __reversed__(self) -> Iterator[DoneEffect]:
        return reversed(self._effects)

    def named(self, name: str) -> tuple[DoneEffect, ...]:
        """The effects of one name, in the order of their occurrences."""
        return tuple(effect for effect in self._effects if effect.name == name)


def undo_of(handoff: Handoff, schema: ContextSchema | None = None, large: Large = INLINE) -> Undo:
    """What a handoff says there is to take back; fields as of the code's version of the schema.

    Raises `Invalid` for fields that upcasters or the schema refuse, and as `Blobs.get`.
    """
    return Undo(
        handoff.undoes,
        tuple(_effect(entry, large) for entry in handoff.undo),
        read_fields(handoff, handoff.wrote, schema, large)
        if handoff.wrote and handoff.undoes_completed
        else {},
        completed=handoff.undoes_completed,
    )


def _effect(entry: UndoEntry, large: Large) -> DoneEffect:
    return DoneEffect(
        name=entry.effect,
        occurrence=entry.occurrence,
        key=entry.key,
        epoch=entry.epoch,
        done=entry.status is EffectStatus.CONFIRMED,
        result=large.whole(values.unpack(entry.result)) if entry.result else None,
        input=large.whole(values.unpack(entry.undo_input)) if entry.undo_input else None,
    )
