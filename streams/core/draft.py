"""One unit of work on one run: what it touches is copied, and adopted whole or not at all."""

from __future__ import annotations

from heapq import heappush
from typing import Final

from dalsegno.schemas.outputs import StepChange, StepState
from dalsegno.schemas.plan import StepPlan, StepRole
from dalsegno.streams.core.context import ContextChange
from dalsegno.streams.core.context_view import View
from dalsegno.streams.core.faultpoint.findings import Finding
from dalsegno.streams.core.moment import Moment
from dalsegno.streams.core.rows import StepRow, engine_gives
from dalsegno.streams.core.runstate import (
    FLYING,
    GROUPS_OF_MOVE,
    PAGE_STEPS,
    Effect,
    Refusal,
    Run,
    StepJournal,
)
from dalsegno.streams.core.step_table import HELD, PENDING, READY

_EMPTY: Final = StepJournal([])
_COMPENSATION: Final = StepRole.COMPENSATION


class IllegalMove(Exception):  # noqa: N818 - a broken invariant of ours, not a fault of the caller's
    """The fold moved a step in a way that no rule of the table allows."""


class Draft:
    """Copies of what a unit touches: the header, rows, effects, saves, one context change.

    `mark`: where the unit's outputs begin in the outbox. `ready` collects steps that became ready
    in this unit, `held` those that were held, or are now. `passes`: the line whose turn it is.
    `permits`: those of fault points that it has spent. `findings`: what it has against
    dependencies; `well`: place, span in milliseconds and offset of the dispatch of an attempt that
    they served well. `took`: the step that completed, and its milliseconds. `refusal`: the one-shot
    request is refused, though the unit is adopted.
    """

    __slots__ = (
        "before",
        "change",
        "effect",
        "entry",
        "facts",
        "findings",
        "head",
        "held",
        "mark",
        "now",
        "passes",
        "permits",
        "plan",
        "ready",
        "reason",
        "refusal",
        "rows",
        "run",
        "save",
        "seen",
        "steps",
        "took",
        "well",
    )

    def __init__(self, run: Run, now: Moment) -> None:
        self.run = run
        self.now = now
        self.mark = len(now.outbox.items)
        self.entry = run.entry
        self.plan = run.entry.plan
        self.steps = run.entry.steps
        head = run.head.__copy__()  # type: ignore[attr-defined]
        head.tally = head.tally.copy()
        self.head = head
        self.rows: dict[int, StepRow] = {}
        self.before: dict[int, StepState] = {}
        self.ready: list[int] = []
        self.held: list[int] = []
        self.passes = ""
        self.permits: tuple[tuple[str, int], ...] = ()
        self.findings: tuple[Finding, ...] = ()
        self.well: tuple[int, int, int] | None = None
        self.took: tuple[str, int] | None = None
        self.change: ContextChange | None = None
        self.effect: tuple[int, int, Effect] | None = None
        self.save: tuple[int, bytes | None] | None = None
        self.seen: str = ""
        self.refusal: Refusal | None = None
        self.facts = False
        self.reason = ""

    def step(self, place: int) -> StepPlan:
        """The declaration of a step."""
        return self.steps[place]

    def row(self, place: int) -> StepRow:
        """The draft's own copy of a row."""
        row = self.rows.get(place)
        if row is None:
            row = self.rows[place] = self.run.rows[place].__copy__()  # type: ignore[attr-defined]
        return row

    def peek(self, place: int) -> StepRow:
        """A row to look at, not to change."""
        return self.rows.get(place) or self.run.rows[place]

    def move(self, place: int, row: StepRow, to: StepState) -> None:
        """Moves a step, counts it in its new group, and clears its deadline."""
        state = row.state
        groups = GROUPS_OF_MOVE[state].get(to)
        if groups is None:
            raise IllegalMove(f"step {self.step(place).name!r} from {state} to {to}")
        self.before.setdefault(place, state)
        tally = self.head.tally
        tally[groups[0]] -= 1
        tally[groups[1]] += 1
        row.state = to
        row.due_ms = 0
        row.live = False
        if to is HELD or state is HELD:
            self.held.append(place)
        if row.epoch > 1 or self.steps[place].role is _COMPENSATION:
            self.head.recovering += (groups[1] == FLYING) - (groups[0] == FLYING)
        if to is READY:
            self.ready.append(place)

    def again(self, place: int, row: StepRow) -> None:
        """The step may have its next attempt, once what it needs is done.

        A service may have reported it ahead of that.
        """
        self.move(place, row, PENDING if row.needs else READY)

    @property
    def context(self) -> View:
        """The context as this unit leaves it so far."""
        return self.run.context if self.change is None else self.change

    def journal(self, place: int) -> StepJournal:
        """The journal of a step as it was before this unit."""
        journals = self.run.journal
        if journals is None:
            return _EMPTY
        return journals.get(place, _EMPTY)

    def saved(self, place: int) -> bytes | None:
        """The save of a step as it was before this unit."""
        saves = self.run.saves
        return None if saves is None else saves.get(place)

    def changes(self) -> tuple[StepChange, ...]:
        """The moves of this unit, in their order."""
        if not self.before:
            return ()
        steps, rows = self.steps, self.rows
        return tuple(
            [
                StepChange(steps[place].name, before, (row := rows[place]).state, row.epoch)
                for place, before in self.before.items()
            ]
        )

    def adopt(self, marks: set[int], flights: dict[tuple[str, str], None]) -> None:
        """Puts the copies in the place of what they are copies of. Nothing here may fail.

        Adds the pages of the rows to `marks`, and the steps whose attempt in flight changed to
        `flights`.
        """
        run = self.run
        run.head = self.head
        rows = run.rows
        if self.entry is not run.entry:
            run.entry = self.entry
            rows.extend(self.entry.rows[len(rows) :])
        for place, row in self.rows.items():
            old = rows[place]
            rows[place] = row
            marks.add(place // PAGE_STEPS)
            if old.flight is not row.flight:
                flights[run.id, self.steps[place].name] = None
            due = row.due_ms
            if due and (due != old.due_ms or row.live != old.live):
                if row.live:
                    if run.lives is None:
                        run.lives = []
                    heappush(run.lives, (due, place))
                else:
                    if run.logs is None:
                        run.logs = []
                    heappush(run.logs, (due, place))
            if row.state is READY:
                self._park(place)
        if self.change is not None:
            self.change.adopt()
        if self.effect is not None:
            self._adopt_effect(*self.effect)
        if self.save is not None:
            self._adopt_save(*self.save)
        if self.seen:
            if run.seen is None:
                run.seen = {}
            run.seen[self.seen] = self.refusal

    def discard(self) -> None:
        """Drops the copies; the open change of the context is taken back."""
        if self.change is not None and not self.change.closed:
            self.change.discard()
        if self.permits:
            self.now.points.give_back(self.permits)

    def _park(self, place: int) -> None:
        if engine_gives(self.steps[place], self.rows[place]):
            if self.run.ready is None:
                self.run.ready = []
            heappush(self.run.ready, place)

    def _adopt_effect(self, place: int, at: int, effect: Effect) -> None:
        run = self.run
        if run.journal is None:
            run.journal = {}
        journal = run.journal.get(place)
        if journal is None:
            journal = run.journal[place] = StepJournal([])
        journal.put(at, effect)

    def _adopt_save(self, place: int, save: bytes | None) -> None:
        run = self.run
        if save is None:
            if run.saves is not None:
                run.saves.pop(place, None)
            return
        if run.saves is None:
            run.saves = {}
        run.saves[place] = save
