"""What a decision is bound to: digests of plan, step and read values, the same in every process."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from dalsegno.streams.core.draft import Draft

_FORM: Final = 1
_encode = msgspec.msgpack.Encoder().encode


def fields_bound(draft: Draft, place: int | None) -> tuple[str, ...]:
    """The fields whose values a decision about this step is bound to: those that it reads."""
    return () if place is None else draft.steps[place].reads


def approval_digest(draft: Draft, place: int) -> bytes:
    """Digest of plan, step and the values that it would read now."""
    step = draft.steps[place]
    values = draft.context.values_digest(step.reads)
    return sha256(_encode((_FORM, draft.run.id, draft.plan.digest, step.name, values))).digest()


def package_digest(draft: Draft, place: int | None, *, number: int, asked: str) -> bytes:
    """Digest of what a package shows that a decision depends on.

    It moves when plan, step, epoch, read values or the set of gates' flags move.
    """
    step, epoch = "", 0
    if place is not None:
        step, epoch = draft.steps[place].name, draft.peek(place).epoch
    head = draft.head
    shown = (
        _FORM,
        draft.run.id,
        number,
        asked,
        step,
        epoch,
        draft.plan.digest,
        draft.context.values_digest(fields_bound(draft, place)),
        head.flags if place is None else (),
        head.quarantine,
    )
    return sha256(_encode(shown)).digest()
