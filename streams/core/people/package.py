"""The escalation package: a pure function of the run at the moment in which a person is asked.

Blocks stand in the order in which a person needs them (see `Escalation`). Every list and sentence
is bounded; what is left out is counted. Values of secret fields stand nowhere in it.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import accumulate
from typing import Final

import msgspec

from dalsegno.schemas.outputs import EffectStatus, Escalation, JournalEntry, StepState
from dalsegno.schemas.package import EarlierDecision, EffectFate, EffectLine
from dalsegno.streams.core.bounds import entry_bytes, words
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.forms import form
from dalsegno.streams.core.goals import run_goal
from dalsegno.streams.core.names import DETAIL_CHARS_MAX, name_fault
from dalsegno.streams.core.people.binding import package_digest
from dalsegno.streams.core.people.options import ASIDE, GATE, editable, options
from dalsegno.streams.core.people.origins import FIELDS_MAX, Origins
from dalsegno.streams.core.people.showing import Mask, value_text
from dalsegno.streams.core.people.state import NOBODY, Ask, Shown, escalation_id
from dalsegno.streams.core.people.wording import question, silence, unsaid
from dalsegno.streams.core.saga.looking import effects_of, left_of

# Fields that one step can ask for at a time.
MISSING_MAX: Final = 64
# Results of effects beyond it are left out of an escalation; then entries beyond it, and counted.
_EFFECTS_BYTES_MAX: Final = 262_144
_LINES_MAX: Final = 48
_WIRE: Final = {GATE: "approval", ASIDE: "decision"}


def cause_of(ask: Ask) -> str:
    """The same text for questions with the same cause: the plain reason, then codes."""
    codes = [code for code in (ask.failure_type, ask.error_class, ask.dependency) if code]
    return "/".join((ask.reason, *codes))[:DETAIL_CHARS_MAX]


def askable(missing: tuple[str, ...]) -> tuple[str, ...]:
    """Names that a field can have, as many as one step can ask for."""
    return tuple([name for name in missing if not name_fault(name)][:MISSING_MAX])


def bound(draft: Draft, place: int | None, ask: Ask) -> Ask:
    """The question with the digest that a decision must name, and with what is shown."""
    digest = package_digest(draft, place, number=ask.number, asked=ask.asked)
    shown = tuple(_shown(draft, name) for name in _fields(draft, place, ask.missing))
    row = None if place is None else draft.peek(place)
    last = () if row is None or row.handled is None else row.handled.last_shown
    now = {each.field: each.digest for each in shown}
    before = tuple(each for each in last if now.get(each.field, each.digest) != each.digest)
    return msgspec.structs.replace(ask, digest=digest, shown=shown, before=before)


def build(draft: Draft, place: int | None, ask: Ask) -> Escalation:
    """The package for a question that is bound already."""
    head, run, now = draft.head, draft.run, draft.now
    step = None if place is None else draft.steps[place]
    row = None if place is None else draft.peek(place)
    entries, hidden = ((), 0) if place is None else _journal(draft, place)
    mask = Mask(draft.context, draft.plan.secrets)
    message = words(mask(ask.detail)) or unsaid(draft, place, ask.reason)
    if hidden:
        message = f"{message} ({hidden} more effects are in its journal)"
    if head.saga is not None:
        # What a run that is taken back has left to take back, exactly.
        message = words(f"{message}; {left_of(draft).text()}")
    origins = Origins(draft)
    reads = () if step is None else step.reads
    code, silent = silence(draft, ask.asked)
    lines, more = _effect_lines(draft, place)
    return Escalation(
        escalation_id=escalation_id(run.id, ask.number),
        run_id=run.id,
        flow=head.flow,
        flow_version=head.flow_version,
        step="" if step is None else step.name,
        epoch=0 if row is None else row.epoch,
        asked=_WIRE.get(ask.asked, ask.asked),
        # Plain text: a member of an enum of ours does not encode.
        reason=str(ask.reason),
        failure_type=str(ask.failure_type),
        error_class=ask.error_class,
        message=message,
        missing_fields=ask.missing,
        advice=words(mask(ask.advice)),
        goal="" if step is None else words(step.goal),
        attempts=0 if row is None else row.failures,
        infra_attempts=0 if row is None else row.infra,
        at_ms=now.log_ms,
        answer_by_ms=ask.answer_by_ms,
        run_version=head.run_version + draft.facts,
        plan_digest=draft.plan.digest,
        values_digest=draft.context.values_digest(reads),
        effects=entries,
        question=question(draft, place, ask.asked, ask.missing),
        silence=code,
        silence_text=silent,
        run_goal=run_goal(draft.plan, head),
        facts=origins.facts(reads),
        evidence=mask(ask.evidence),
        dependency=ask.dependency,
        effect_lines=lines,
        effects_more=more,
        options=options(draft, place, ask.asked, ask.missing),
        fields=origins.lines(ask.shown, ask.before),
        partition=now.partition,
        offset=now.offset,
        cause=cause_of(ask),
        earlier=_earlier(draft, ask),
        reminder=ask.reminded,
        package_digest=ask.digest,
        form=form(draft, ask.missing),
    )


def _fields(draft: Draft, place: int | None, missing: tuple[str, ...]) -> tuple[str, ...]:
    names = (*missing, *(() if place is None else editable(draft, place)))
    return tuple(dict.fromkeys(names))[:FIELDS_MAX]


def _shown(draft: Draft, field: str) -> Shown:
    digest = blake2b(draft.context.packed(field) or b"", digest_size=8).digest()
    return Shown(field, digest, value_text(draft.context, field, draft.plan.secrets))


def _earlier(draft: Draft, ask: Ask) -> tuple[EarlierDecision, ...]:
    cause = cause_of(ask)
    return tuple(
        EarlierDecision(
            escalation_id=escalation_id(draft.run.id, each.number),
            decision=each.decision,
            decided_by=each.by,
            reason=each.reason,
            at_ms=each.at_ms,
            step=each.step,
        )
        for each in (draft.head.people or NOBODY).decided
        if each.cause == cause
    )


def _effect_lines(draft: Draft, place: int | None) -> tuple[tuple[EffectLine, ...], int]:
    """Effects of the run: the step's own first, then what is unknown, then the rest by plan."""
    acted = set(draft.run.journal or ())
    if draft.effect is not None:
        acted.add(draft.effect[0])
    lines: list[tuple[tuple[bool, bool, int], EffectLine]] = []
    for at in sorted(acted):
        undone = draft.peek(at).state is StepState.COMPENSATED
        for effect in effects_of(draft, at):
            entry = effect.entry
            fate = EffectFate.UNDONE if undone else EffectFate(entry.status.value)
            lines.append(
                (
                    (at != place, fate is not EffectFate.UNKNOWN, len(lines)),
                    EffectLine(
                        step=draft.steps[at].name,
                        effect=words(entry.effect)[:DETAIL_CHARS_MAX],
                        occurrence=entry.occurrence,
                        key=entry.key,
                        fate=fate,
                    ),
                )
            )
    lines.sort(key=lambda each: each[0])
    shown = tuple(line for _, line in lines[:_LINES_MAX])
    return shown, len(lines) - len(shown)


def _journal(draft: Draft, place: int) -> tuple[tuple[JournalEntry, ...], int]:
    """The step's journal, this event's own act included, as far as it fits beside the rest; and how
    many entries do not.

    Results go first. Of entries those whose outcome is unknown stay longest.
    """
    entries = [effect.entry for effect in effects_of(draft, place)]
    if sum(map(entry_bytes, entries)) <= _EFFECTS_BYTES_MAX:
        return tuple(entries), 0
    entries = [msgspec.structs.replace(entry, result=b"") for entry in entries]
    entries.sort(key=lambda entry: entry.status is EffectStatus.CONFIRMED)
    sizes = accumulate(map(entry_bytes, entries))
    kept = sum(size <= _EFFECTS_BYTES_MAX for size in sizes)
    return tuple(entries[:kept]), len(entries) - kept
