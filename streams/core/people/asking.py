"""Asks people: makes the package, keeps the open question, reminds, and asks again."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.streams.core.actions import Escalate
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.names import DETAIL_CHARS_MAX
from dalsegno.streams.core.people.binding import package_digest
from dalsegno.streams.core.people.options import ASIDE, GATE, NOTICE
from dalsegno.streams.core.people.package import askable, bound, build
from dalsegno.streams.core.people.showing import Mask
from dalsegno.streams.core.people.state import NOBODY, NOT_HANDLED, Ask
from dalsegno.streams.core.rows import StepRow

CHANNEL: Final = "escalations"


class Failure(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of a failure when it is put to a person. `evidence`: of a verdict."""

    type: str = ""
    error_class: str = ""
    message: str = ""
    missing: tuple[str, ...] = ()
    advice: str = ""
    dependency: str = ""
    evidence: str = ""


UNNAMED: Final = Failure()


def publish(
    draft: Draft,
    place: int | None,
    asked: str,
    reason: str,
    detail: str,
    *,
    failure: Failure = UNNAMED,
    answer_by_ms: int | None = None,
) -> int:
    """Puts a package on record and keeps the question open; returns its next deadline.

    A notice asks nothing and is not kept.
    """
    now, head = draft.now, draft.head
    head.escalations += 1
    # Codes make the cause, which stands in later packages, too: no secret enters the state by them.
    mask = Mask(draft.context, draft.plan.secrets)
    answer_by = now.log_ms + now.policy.person_wait_ms if answer_by_ms is None else answer_by_ms
    ask = Ask(
        number=head.escalations,
        digest=b"",
        asked=asked,
        reason=str(reason)[:DETAIL_CHARS_MAX],
        detail=failure.message or detail,
        at_ms=now.log_ms,
        answer_by_ms=answer_by,
        failure_type=str(failure.type),
        error_class=mask(failure.error_class)[:DETAIL_CHARS_MAX],
        missing=askable(failure.missing),
        advice=failure.advice,
        dependency=mask(failure.dependency)[:DETAIL_CHARS_MAX],
        evidence=failure.evidence[:DETAIL_CHARS_MAX],
    )
    return _put(draft, place, ask)


def _put(draft: Draft, place: int | None, ask: Ask) -> int:
    ask = bound(draft, place, ask)
    draft.now.outbox.put(CHANNEL, Escalate(build(draft, place, ask)))
    if ask.asked != NOTICE:
        # The first package has every word; the state keeps as much as a reminder needs.
        _keep(
            draft,
            place,
            msgspec.structs.replace(
                ask, detail=ask.detail[:DETAIL_CHARS_MAX], advice=ask.advice[:DETAIL_CHARS_MAX]
            ),
        )
    return next_due_ms(draft.now.policy, ask)


def _keep(draft: Draft, place: int | None, ask: Ask) -> None:
    if place is not None:
        row = draft.row(place)
        handled = row.handled or NOT_HANDLED
        row.handled = msgspec.structs.replace(handled, ask=ask, granted=0)
        return
    people = draft.head.people or NOBODY
    if ask.asked == GATE:
        people = msgspec.structs.replace(people, gate=ask)
    else:
        assert ask.asked == ASIDE, f"a run is not asked about as {ask.asked}"
        people = msgspec.structs.replace(people, aside=ask)
    draft.head.people = people


def answered(row: StepRow) -> None:
    """The step's open question is over, if it has one: nobody is waited for any more."""
    if row.handled is not None and row.handled.ask is not None:
        row.handled = row.handled.closed()


def next_due_ms(policy: Policy, ask: Ask) -> int:
    """When the next reminder is due, or the answer: reminders wait twice as long each time."""
    if policy.reminder_first_ms <= 0 or ask.reminded >= policy.reminders_max:
        return ask.answer_by_ms
    waited = policy.reminder_first_ms * ((2 << ask.reminded) - 1)
    return min(ask.at_ms + waited, ask.answer_by_ms)


def remind_or_none(draft: Draft, place: int | None, ask: Ask | None) -> int | None:
    """Reminds of a question that is due before its answer is, and returns its next deadline.

    None: the time to answer is over. What was shown and has moved is asked again instead.
    """
    if ask is None or draft.now.log_ms >= ask.answer_by_ms:
        return None
    if moved(draft, place, ask):
        return ask_again(draft, place, ask)
    reminded = msgspec.structs.replace(ask, reminded=ask.reminded + 1)
    draft.now.outbox.put(CHANNEL, Escalate(build(draft, place, reminded)))
    _keep(draft, place, reminded)
    return next_due_ms(draft.now.policy, reminded)


def moved(draft: Draft, place: int | None, ask: Ask) -> bool:
    """Whether plan, step or values are not what the package showed."""
    return package_digest(draft, place, number=ask.number, asked=ask.asked) != ask.digest


def ask_again(draft: Draft, place: int | None, ask: Ask) -> int:
    """A new package in the place of one that shows what is no longer so; its next deadline."""
    now, head = draft.now, draft.head
    head.escalations += 1
    again = msgspec.structs.replace(
        ask,
        number=head.escalations,
        at_ms=now.log_ms,
        answer_by_ms=now.log_ms + now.policy.person_wait_ms,
        reminded=0,
    )
    return _put(draft, place, again)
