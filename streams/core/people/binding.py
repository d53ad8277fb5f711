"""What a decision is bound to: digests of what was shown, the same in every process."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.saga.looking import effects_of

_FORM: Final = 1
_encode = msgspec.msgpack.Encoder().encode


def fields_bound(draft: Draft, place: int | None) -> tuple[str, ...]:
    """The fields whose values a decision about this step is bound to: those that it reads."""
    return () if place is None else draft.steps[place].reads


def _run(draft: Draft) -> tuple[str, int]:
    """This run, and no earlier or later one of its id: the stub of one outlasts its end."""
    return draft.run.id, draft.head.started_ms


def _journal(draft: Draft, place: int | None) -> tuple[tuple[str, str], ...]:
    """Every effect of a step by its key, and what is known of it."""
    if place is None:
        return ()
    return tuple(
        (effect.entry.key, effect.entry.status.value) for effect in effects_of(draft, place)
    )


def _taken_back(draft: Draft, place: int) -> int | None:
    """The step that the one at `place` takes back, if it is out to take back any."""
    undoes = draft.peek(place).undoes
    return None if undoes is None else undoes.step


def approval_digest(draft: Draft, place: int) -> bytes:
    """Digest of plan, step, the values that it would read now, and what it would take back.

    The step's own journal is no part of it: its next attempt goes on where the last one ended.
    """
    step = draft.steps[place]
    values = draft.context.values_digest(step.reads)
    bound = (
        _FORM,
        *_run(draft),
        draft.plan.digest,
        step.name,
        values,
        _journal(draft, _taken_back(draft, place)),
    )
    return sha256(_encode(bound)).digest()


def package_digest(draft: Draft, place: int | None, *, number: int, asked: str) -> bytes:
    """Digest of what a package shows that a decision depends on.

    It moves when plan, step, epoch, read values or the set of gates' flags move, and when more
    becomes known of the effects of the step, or of the one that it takes back.
    """
    step, epoch, taken_back = "", 0, None
    if place is not None:
        step, epoch = draft.steps[place].name, draft.peek(place).epoch
        taken_back = _taken_back(draft, place)
    head = draft.head
    shown = (
        _FORM,
        *_run(draft),
        number,
        asked,
        step,
        epoch,
        draft.plan.digest,
        draft.context.values_digest(fields_bound(draft, place)),
        head.flags if place is None else (),
        head.quarantine,
        _journal(draft, place),
        _journal(draft, taken_back),
    )
    return sha256(_encode(shown)).digest()
