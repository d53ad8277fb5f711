"""The four signals of a flow, and its troubled runs, as values."""

from __future__ import annotations

import msgspec

from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.signals.missing import Finding, Missing


class Spread(msgspec.Struct, frozen=True, gc=False):
    """How long something took, in milliseconds: how often, and what lies in the middle and beyond.

    `p95_ms`: the smallest value that 95 % of all do not exceed. All 0 where there was none.
    """

    count: int = 0
    mean_ms: float = 0.0
    median_ms: float = 0.0
    p95_ms: int = 0
    max_ms: int = 0

    @classmethod
    def of(cls, took_ms: list[int]) -> Spread:
        """Of these durations."""
        if not took_ms:
            return cls()
        ordered = sorted(took_ms)
        count = len(ordered)
        middle = ordered[(count - 1) // 2] + ordered[count // 2]
        rank = -(-95 * count // 100)
        return cls(count, sum(ordered) / count, middle / 2, ordered[rank - 1], ordered[-1])


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Mean time to recovery: from a step's first damage to its completion.

    `given_up`: damaged steps that the run ended without, or went back over; `open`: not yet whole.
    """

    took: Spread
    given_up: int
    open: int

    @property
    def mean_ms(self) -> float:
        """The signal."""
        return self.took.mean_ms


class Rework(msgspec.Struct, frozen=True, kw_only=True):
    """Rework rate: attempts beyond the first, per step that had one."""

    attempts: int
    steps: int

    @property
    def rate(self) -> float:
        """The signal."""
        return (self.attempts - self.steps) / self.steps if self.steps else 0.0


class Conflicts(msgspec.Struct, frozen=True, kw_only=True):
    """State-conflict rate: superseded and refused events per event of the flow's runs."""

    events: int
    superseded: int
    refused: int

    @property
    def rate(self) -> float:
        """The signal."""
        return (self.superseded + self.refused) / self.events if self.events else 0.0


class Clarity(msgspec.Struct, frozen=True, kw_only=True):
    """Clarity of escalations: time to decision, and the share that was escalated again.

    `asked`: packages; `again`: those about a step (or a run as a whole) that had been asked about
    before; `open`: not answered yet; `unanswered`: closed without a decision.
    """

    asked: int
    again: int
    open: int
    unanswered: int
    took: Spread

    @property
    def again_share(self) -> float:
        """The second half of the signal."""
        return self.again / self.asked if self.asked else 0.0


class Troubled(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was in trouble. `findings` in the order of the log; `more` were not kept."""

    run_id: str
    partition: int
    state: RunState | None
    findings: tuple[Finding, ...]
    more: int
    last_ms: int

    @property
    def missing(self) -> Missing:
        """What was missing first: what comes after it mostly follows from it."""
        named = (each.missing for each in self.findings if each.missing is not Missing.NOTHING)
        return next(named, Missing.NOTHING)


class FlowReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one flow. `states`: runs by where they stand; None: the start was refused.

    `troubled`: the last ones, newest trouble first, of `troubled_runs` in all.
    """

    flow: str
    runs: int
    states: dict[RunState | None, int]
    recovery: Recovery
    rework: Rework
    conflicts: Conflicts
    clarity: Clarity
    troubled_runs: int
    troubled: tuple[Troubled, ...]

    @property
    def missing(self) -> dict[Missing, int]:
        """The last troubled runs by what was missing first."""
        found = dict.fromkeys(Missing, 0)
        for run in self.troubled:
            found[run.missing] += 1
        return found
