"""Judges a person's decision: first on its package, made on what it showed, and possible."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.control import DecisionMade
from dalsegno.schemas.outputs import Outcome, RunState
from dalsegno.schemas.package import Option
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.moment import Ruling, refused
from dalsegno.streams.core.names import DETAIL_CHARS_MAX, ID_CHARS_MAX
from dalsegno.streams.core.people.asking import ask_again, moved
from dalsegno.streams.core.people.effecting import TAKE
from dalsegno.streams.core.people.options import options
from dalsegno.streams.core.people.package import cause_of
from dalsegno.streams.core.people.rights import rights_fault
from dalsegno.streams.core.people.state import DECIDED_MAX, NOBODY, Ask, Decided, People
from dalsegno.streams.core.step_table import WITH_PEOPLE

# What a second person hears of the first one's words.
_HEARD_CHARS_MAX: Final = 200


class Open(msgspec.Struct, frozen=True):
    """An open question: about the step at `place`, or about the run."""

    ask: Ask
    place: int | None


def decision_made(draft: Draft, event: DecisionMade) -> Ruling:
    """Takes a decision, or says why not.

    One that was made on what has moved since is refused, and the question is asked again.
    """
    if no_right := rights_fault(draft.now.policy, event, draft.head.flow):
        return refused("not_allowed", no_right)
    found = _find(draft, event)
    if isinstance(found, Ruling):
        return found
    ask, place = found.ask, found.place
    if moved(draft, place, ask):
        due_ms = ask_again(draft, place, ask)
        _wait_until(draft, place, due_ms)
        detail = "plan, step or values are not what the package showed; it is asked again"
        return msgspec.structs.replace(refused("package_moved", detail), keeps=True)
    fault = _fault(event, _option(draft, found, event))
    if fault is not None:
        return fault
    ruling = TAKE[event.decision](draft, place, event)
    if ruling is not None:
        return ruling
    _remember(draft, found, event)
    draft.facts = True
    draft.reason = f"{event.decision}: {event.reason}"
    # Whatever the run comes to by it, who said what and why stands in the transition.
    return Ruling(Outcome.APPLIED, draft.reason)


def _find(draft: Draft, event: DecisionMade) -> Open | Ruling:
    """The open question that the decision is about."""
    run_id, _, number_text = event.escalation_id.rpartition("#")
    if run_id != draft.run.id or not (number_text.isascii() and number_text.isdigit()):
        return refused("not_open", f"this run has no package {event.escalation_id[:80]!a}")
    number = int(number_text)
    people = draft.head.people or NOBODY
    for earlier in people.decided:
        if earlier.number == number:
            return refused("already_decided", first_heard(earlier))
    place = draft.plan.index.get(event.step) if event.step else None
    ask = _open_ask(draft, people, place)
    if ask is None or ask.number != number:
        current = "" if ask is None else f"; open is number {ask.number}"
        return refused("not_open", f"package {number} is closed or not about this step{current}")
    values = (event.package_digest, ask.digest)
    if values[0] != values[1]:
        return refused("other_package", "the decision names another digest than the package has")
    expected = event.expected_run_version
    if expected is not None and expected != draft.head.run_version:
        return refused(
            "version_conflict", f"expected run version {expected}, is {draft.head.run_version}"
        )
    return Open(ask, place)


def _open_ask(draft: Draft, people: People, place: int | None) -> Ask | None:
    if draft.head.state is RunState.QUARANTINED:
        return people.aside
    if place is None:
        return people.gate
    row = draft.peek(place)
    if row.handled is None or row.state not in WITH_PEOPLE:
        return None
    return row.handled.ask


def first_heard(earlier: Decided) -> str:
    """What a second decision on the same package is answered with: the first."""
    said = f"{earlier.decision} by {earlier.by} at {earlier.at_ms} ms: {earlier.reason}"
    return said[:_HEARD_CHARS_MAX]


def _option(draft: Draft, found: Open, event: DecisionMade) -> Option:
    offered = options(draft, found.place, found.ask.asked, found.ask.missing)
    return next(option for option in offered if option.decision is event.decision)


def _fault(event: DecisionMade, option: Option) -> Ruling | None:
    if option.why_not:
        return refused("not_available", f"{event.decision}: {option.why_not}")
    if not 0 < len(event.decided_by) <= ID_CHARS_MAX:
        return refused("no_decider", f"who decides has 1 to {ID_CHARS_MAX} characters")
    if not event.reason.strip():
        return refused("no_reason", "a decision is recorded with its reason")
    return None


def _wait_until(draft: Draft, place: int | None, due_ms: int) -> None:
    if place is not None:
        draft.row(place).due_ms = due_ms
    elif draft.head.gate:
        draft.head.gate_due_ms = due_ms


def _remember(draft: Draft, found: Open, event: DecisionMade) -> None:
    """The question is closed; who decided what, and why, stays."""
    people = draft.head.people or NOBODY
    decided = Decided(
        number=found.ask.number,
        decision=event.decision,
        by=event.decided_by,
        reason=event.reason[:DETAIL_CHARS_MAX],
        at_ms=draft.now.log_ms,
        step=event.step,
        cause=cause_of(found.ask),
    )
    draft.head.people = msgspec.structs.replace(
        people, decided=(*people.decided, decided)[-DECIDED_MAX:]
    )
