"""The sentences of a package: plain words first, codes after."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.package import Silence
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.people.options import (
    APPROVAL,
    ASIDE,
    GATE,
    INFORMATION,
    NOTICE,
)
from dalsegno.streams.core.saga.turning import plan_goes_back

_FIELDS_SAID: Final = 8


def question(draft: Draft, place: int | None, asked: str, missing: tuple[str, ...]) -> str:
    """What is asked, as one sentence."""
    if asked == ASIDE:
        return "Should the run go on as it was before our code raised on it, or end?"
    if asked == GATE:
        return "May the further steps of this run start?"
    assert place is not None, "all other questions are about a step"
    step = draft.steps[place]
    if asked == APPROVAL:
        return f"May step {step.name} run with these values? Its risk: {step.risk}."
    if asked == INFORMATION:
        names = ", ".join(missing[:_FIELDS_SAID])
        more = f" and {len(missing) - _FIELDS_SAID} more" if len(missing) > _FIELDS_SAID else ""
        return f"What is {names}{more}? Step {step.name} cannot run without."
    if asked == NOTICE:
        return f"Nothing is asked: step {step.name} goes on, and you should know."
    return f"How does the run go on, now that step {step.name} cannot?"


def unsaid(draft: Draft, place: int | None, reason: str) -> str:
    """What happened, where whoever reported it left no word."""
    what = "The run" if place is None else f"Step {draft.steps[place].name}"
    return f"{what} cannot go on, and no word was left why ({reason})."


def silence(draft: Draft, asked: str) -> tuple[Silence, str]:
    """What happens when nobody answers in time, as a code and as a sentence."""
    if asked == NOTICE:
        return Silence.NOTHING, "Nothing: no answer is waited for."
    if asked == ASIDE:
        return Silence.EXPIRES, "The run ends as expired; nothing is undone."
    if draft.head.saga is not None:
        return Silence.FAILS, "The run ends as failed; what is not taken back yet stays as it is."
    if plan_goes_back(draft):
        return Silence.COMPENSATES, "What the run has done is undone, and the run ends."
    return Silence.FAILS, "The run ends as failed; what it has done stays as it is."
