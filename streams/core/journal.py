"""The journal of effects: what was intended and what is known to have happened."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.events import EffectConfirmed, EffectIntended
from dalsegno.schemas.outputs import EffectStatus, JournalEntry, Outcome
from dalsegno.schemas.plan import UnknownPolicy
from dalsegno.streams.core.attempts import judge, touch
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.effects import effect_key, recovery_key
from dalsegno.streams.core.moment import ACCEPTED, APPLIED, Ruling, duplicate, refused
from dalsegno.streams.core.people.granting import granted
from dalsegno.streams.core.runstate import Effect
from dalsegno.streams.core.saga.taking_back import heard_late
from dalsegno.streams.core.step_table import StepInput

_INTENDED: Final = StepInput.INTENDED
_CONFIRMED: Final = StepInput.CONFIRMED
_RETRY: Final = UnknownPolicy.RETRY
_UNKNOWN: Final = EffectStatus.UNKNOWN
_DONE: Final = EffectStatus.CONFIRMED


def effect_intended(draft: Draft, event: EffectIntended) -> Ruling:
    """An attempt is about to act. Its key is a pure function and is checked.

    An intent of a superseded attempt enters the journal too: the act may happen.
    """
    if event.occurrence < 0:
        return refused("bad_occurrence", "occurrences count from 0")
    key = effect_key(recovery_key(event.run_id, event.step), event.effect, event.occurrence)
    if event.key != key:
        return refused("wrong_key", f"the key of this effect is {key}")
    ruled = judge(draft, event, _INTENDED)
    place = ruled if isinstance(ruled, int) else draft.plan.index.get(event.step)
    if place is None:
        assert isinstance(ruled, Ruling), "a step that the plan lacks is refused"
        return ruled
    at = draft.journal(place).find(event.effect, event.occurrence)
    if not isinstance(ruled, int):
        return _stray_intent(draft, place, at, event, ruled)
    step = draft.steps[place]
    answered = step.unknown is not _RETRY
    if at is not None:
        return _intended_again(draft, place, at, event, answered=answered)
    refusal = _enter(draft, place, event)
    if refusal is not None:
        return refusal
    touch(draft, place, event)
    return ACCEPTED if answered else APPLIED


def _enter(draft: Draft, place: int, event: EffectIntended) -> Ruling | None:
    head, policy = draft.head, draft.now.policy
    if head.effects >= policy.effects_max:
        return refused("too_many_effects", f"the policy allows {policy.effects_max} in a run")
    if len(event.undo_input) > policy.inline_bytes_max:
        return refused("undo_too_large", f"the policy allows {policy.inline_bytes_max} bytes")
    entry = JournalEntry(
        effect=event.effect,
        occurrence=event.occurrence,
        key=event.key,
        status=_UNKNOWN,
        epoch=event.epoch,
    )
    effect = Effect(entry, event.epoch, event.undo, event.undo_input)
    draft.effect = (place, len(draft.journal(place).effects), effect)
    head.effects += 1
    head.effects_unknown += 1
    return None


def _intended_again(
    draft: Draft, place: int, at: int, event: EffectIntended, *, answered: bool
) -> Ruling:
    effect = draft.journal(place).effects[at]
    entry = effect.entry
    if entry.epoch == event.epoch:
        unknown_before = effect.intended_epoch != entry.epoch
        return duplicate("unknown_before" if unknown_before else "repeated", answer=answered)
    if entry.status is EffectStatus.CONFIRMED:
        return refused("already_confirmed", f"in epoch {entry.epoch}; its result is in the handoff")
    if draft.steps[place].unknown is UnknownPolicy.PERSON and not granted(
        draft.peek(place), event.epoch, effect.intended_epoch
    ):
        return refused("unknown_effect", "its outcome is unknown; a person decides")
    again = msgspec.structs.replace(entry, epoch=event.epoch)
    draft.effect = (place, at, Effect(again, effect.intended_epoch, effect.undo, effect.undo_input))
    touch(draft, place, event)
    return Ruling(Outcome.APPLIED, "unknown_before", answer=answered)


def _stray_intent(
    draft: Draft, place: int, at: int | None, event: EffectIntended, ruling: Ruling
) -> Ruling:
    """The attempt may not act any more, and may have acted already."""
    if ruling.outcome is Outcome.DUPLICATE or at is not None or ruling.reason == "unknown_epoch":
        return ruling
    refusal = _enter(draft, place, event)
    if refusal is not None:
        return refusal
    heard_late(draft, place)
    return msgspec.structs.replace(ruling, keeps=True)


def effect_confirmed(draft: Draft, event: EffectConfirmed) -> Ruling:
    """The effect has happened: whoever says so, it is known from now on."""
    place = draft.plan.index.get(event.step)
    if place is None:
        return refused("unknown_step", f"the plan has no step {event.step!a}")
    at = draft.journal(place).find(event.effect, event.occurrence)
    if at is None:
        return refused("not_intended", "an effect is intended before it is confirmed")
    effect = draft.journal(place).effects[at]
    if effect.entry.status is _DONE:
        return duplicate()
    limit = draft.now.policy.inline_bytes_max
    if len(event.result) > limit:
        return refused("result_too_large", f"the policy allows {limit} bytes")
    ruled = judge(draft, event, _CONFIRMED)
    if not isinstance(ruled, int) and ruled.reason == "unknown_epoch":
        return ruled
    known = msgspec.structs.replace(effect.entry, status=_DONE, result=event.result)
    draft.effect = (place, at, Effect(known, effect.intended_epoch, effect.undo, effect.undo_input))
    draft.head.effects_unknown -= 1
    heard_late(draft, place)
    if not isinstance(ruled, int):
        return msgspec.structs.replace(ruled, keeps=True)
    if draft.peek(place).flight is not None:
        touch(draft, place, event)
    return APPLIED
