"""What an escalation package is made of, beside its head: the blocks that a person reads.

Texts are plain sentences, already masked and cut: values of secret fields never stand in them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from dalsegno.schemas.control import DecisionType
from dalsegno.schemas.plan import FieldType


class Silence(StrEnum):
    """What happens when nobody answers in time."""

    NOTHING = "nothing"
    FAILS = "fails"
    COMPENSATES = "compensates"
    EXPIRES = "expires"


class EffectFate(StrEnum):
    """What is known of an effect, its undoing included."""

    CONFIRMED = "confirmed"
    UNKNOWN = "unknown"
    UNDONE = "undone"


class FieldChange(StrEnum):
    """How a context field came to be as it is."""

    GIVEN = "given"
    WRITTEN = "written"
    SUPPLIED = "supplied"
    MISSING = "missing"


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One confirmed fact. `source`: the step that wrote it, or who gave it; `run_version`: as of
    when.
    """

    field: str
    value: str
    source: str
    run_version: int


class EffectLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One effect of the run. `key` is the idempotency key that its receiver knows it by."""

    step: str
    effect: str
    occurrence: int
    key: str
    fate: EffectFate


class Option(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One way on. `text` says what it does; `why_not` why it is not available (empty if it is).

    `redoes`, `keeps`, `undoes` name steps; `needs` names context fields that come with the decision
    (all of them for supply, any of them for edit). `reversible`: whether it can be taken back.
    """

    decision: DecisionType
    text: str
    why_not: str = ""
    redoes: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    undoes: tuple[str, ...] = ()
    reversible: bool = False
    needs: tuple[str, ...] = ()


class FieldLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A context field that matters for the decision, and what made it what it is.

    `moved`: it has changed since the package before this one, which asked about the same step;
    `before` is what it was then (empty: missing, or not moved).
    """

    field: str
    value: str
    change: FieldChange
    source: str
    run_version: int
    moved: bool = False
    before: str = ""


class FormField(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A field that whoever answers has to fill in, by what the plan says of it.

    `text`: what it is, in words. `needed_by`: steps still to come that read it. `secret`: what is
    filled in is never shown again.
    """

    field: str
    type: FieldType = FieldType.ANY
    text: str = ""
    secret: bool = False
    needed_by: tuple[str, ...] = ()


class EarlierDecision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A decision that was made before on the same cause."""

    escalation_id: str
    decision: DecisionType
    decided_by: str
    reason: str
    at_ms: int
    step: str = ""
