"""What the fold remembers of questions to people and of their answers. All of it is bounded."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.control import DecisionType

# Decisions that a run remembers, newest last: a second one on the same package hears the first.
DECIDED_MAX: Final = 16
# Decisions that the stub of an ended run keeps.
DECIDED_KEPT: Final = 4
# Fields that people or other services gave, newest last; older ones are said to be given.
OUTSIDE_MAX: Final = 32


class Shown(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A field as a package showed it: a digest of what it held, and the text, masked and cut."""

    field: str
    digest: bytes
    value: str


class Ask(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An open question. `number`: the n of its escalation id. `digest`: what a decision binds to.

    `asked`, `reason` and the failure's words make the package again, for a reminder or when what
    was shown has moved. `reminded`: how many reminders went out. `shown`: the package's fields;
    `before`: those that had changed, as the package before showed them.
    """

    number: int
    digest: bytes
    asked: str
    reason: str
    detail: str
    at_ms: int
    answer_by_ms: int
    reminded: int = 0
    failure_type: str = ""
    error_class: str = ""
    missing: tuple[str, ...] = ()
    advice: str = ""
    dependency: str = ""
    evidence: str = ""
    shown: tuple[Shown, ...] = ()
    before: tuple[Shown, ...] = ()


class Approval(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A person agreed to a risky step as it was then: `digest` is of plan, step and read values."""

    digest: bytes
    by: str
    at_ms: int


class Handled(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A step's part. `granted`: the epoch for which a person permits to try an effect of unknown
    outcome again. `wrote`: fields that a completed step wrote though it only may. `shown`: the
    fields of the last package that was answered.
    """

    ask: Ask | None = None
    approval: Approval | None = None
    granted: int = 0
    wrote: tuple[str, ...] = ()
    shown: tuple[Shown, ...] = ()

    @property
    def last_shown(self) -> tuple[Shown, ...]:
        """The fields of the last package about the step, answered or not."""
        return self.shown if self.ask is None else self.ask.shown

    def closed(self) -> Handled:
        """The same without its open question."""
        return msgspec.structs.replace(self, ask=None, shown=self.last_shown)


class Decided(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A decision that was taken. `number`: of its package; `cause`: of that package."""

    number: int
    decision: DecisionType
    by: str
    reason: str
    at_ms: int
    step: str = ""
    cause: str = ""


class Outside(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A context field that came from outside the plan."""

    field: str
    origin: str
    run_version: int


class People(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The run's part. `gate`, `aside`: the open questions about the run as a whole, for a closed
    gate and for quarantine. `awaiting`: positions of steps that await an approval.
    """

    gate: Ask | None = None
    aside: Ask | None = None
    awaiting: tuple[int, ...] = ()
    decided: tuple[Decided, ...] = ()
    outside: tuple[Outside, ...] = ()


NOBODY: Final = People()
NOT_HANDLED: Final = Handled()


def escalation_id(run_id: str, number: int) -> str:
    """Derived, and different from all others of the run."""
    return f"{run_id}#{number}"
