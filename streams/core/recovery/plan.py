"""The plan of a run's recovery, as a value: to be looked at before anything of it runs.

What was lost, what is kept, what is redone or done for the first time, what must be checked first,
in which order, what runs beside what, how long it is estimated to take, and the bound that no
order can beat: max(critical path, work / width).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from dalsegno.schemas.outputs import EffectStatus, RunState, StepState
from dalsegno.streams.core.goals import run_goal
from dalsegno.streams.core.recovery.estimates import Estimates
from dalsegno.streams.core.recovery.forecast import Damaged, Planned, forecast
from dalsegno.streams.core.recovery.ranks import (
    Left,
    graham_bound_ms,
    lower_bound_ms,
    what_is_left,
)
from dalsegno.streams.core.recovery.suffering import followed_digest
from dalsegno.streams.core.runstate import Run
from dalsegno.streams.core.step_table import (
    AWAITING_APPROVAL,
    BACKING_OFF,
    DISPATCHED,
    ESCALATED,
    FINAL_STEPS,
    HELD,
    MISSING_INFO,
    RUNNING,
)


class Doing(StrEnum):
    """What the plan does with a step."""

    RUNNING = "running"
    REDO = "redo"
    FIRST = "first"
    CHECK = "check first"
    PERSON = "waits for a person"
    INFORMATION = "waits for information"
    BEHIND = "behind what waits"


_ASKED: Final = {
    ESCALATED: Doing.PERSON,
    AWAITING_APPROVAL: Doing.PERSON,
    MISSING_INFO: Doing.INFORMATION,
}
_OUT: Final = frozenset({DISPATCHED, RUNNING})


class LostAttempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The last attempt of a step, which has ended without its result. `by`: what ended it."""

    step: str
    epoch: int
    by: str
    failures: int
    infra_failures: int


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A step that is not done. `begin_ms`, `end_ms`: predicted, from now on; -1 where people decide
    when. `group`: steps of one group wait for nothing in it, and may run side by side. `learned`:
    the estimate comes from completed attempts. `unknown`: effects of unknown outcome.
    """

    step: str
    doing: Doing
    state: StepState
    group: int
    begin_ms: int
    end_ms: int
    usual_ms: int
    learned: bool
    rank_ms: int
    epoch: int
    needs: tuple[str, ...]
    depends_on: tuple[str, ...]
    unknown: tuple[str, ...]
    held_by: str = ""


class RecoveryPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The plan of one run. Times in milliseconds; `predicted_ms`, bounds: from now on.

    `digest` names the plan that is followed: of the run's plan and the ranks of what is left. It is
    that of the transition with which the damage began as long as nothing was learned since. `goal`:
    what the run is for.
    """

    run_id: str
    flow: str
    goal: str
    state: RunState
    waiting_for: str
    digest: str
    at_ms: int
    damaged_since_ms: int
    lost: tuple[LostAttempt, ...]
    kept: tuple[str, ...]
    steps: tuple[PlannedStep, ...]
    groups: tuple[tuple[str, ...], ...]
    width: int
    work_ms: int
    path_ms: int
    bound_ms: int
    latest_ms: int
    predicted_ms: int

    def doing(self, what: Doing) -> tuple[str, ...]:
        """Names of the steps that the plan does this with."""
        return tuple(step.step for step in self.steps if step.doing is what)


class _Look:
    """One look at a run: what each of its unfinished steps waits for."""

    def __init__(self, run: Run, estimates: Estimates, now_ms: int) -> None:
        self.run = run
        self.plan = run.entry.plan
        self.now_ms = now_ms
        self.estimates = estimates
        rows = run.rows
        self.done = [row.state in FINAL_STEPS for row in rows]
        self.usual = estimates.of(run.head.flow, run.entry.steps)
        self.ahead = [self._ahead_ms(place) for place in range(len(rows))]
        self.stuck = self._stuck()
        self.left: Left = what_is_left(
            self.plan.order, self.plan.graph.dependents, self.usual, self.done
        )

    def _ahead_ms(self, place: int) -> int:
        """What the step still takes: less than usual when it is out already."""
        flight = self.run.rows[place].flight
        if flight is None:
            return self.usual[place]
        return max(1, self.usual[place] - max(0, self.now_ms - flight.since_ms))

    def _stuck(self) -> dict[int, Doing]:
        """Steps that wait for people, and all behind them."""
        stuck: dict[int, Doing] = {}
        for place in self.plan.order:
            asked = _ASKED.get(self.run.rows[place].state)
            if asked is not None:
                stuck[place] = asked
            elif not self.done[place] and any(n in stuck for n in self.plan.graph.needs[place]):
                stuck[place] = Doing.BEHIND
        return stuck

    def damaged(self) -> Damaged:
        """What goes by itself, for a forecast."""
        rows = self.run.rows
        since = self.now_ms if self.run.head.damage is None else self.run.head.damage.since_ms
        return Damaged(
            run_id=self.run.id,
            since_ms=since,
            order=self.plan.order,
            needs=self.plan.graph.needs,
            dependents=self.plan.graph.dependents,
            usual_ms=self.ahead,
            finished=[done or place in self.stuck for place, done in enumerate(self.done)],
            ready_ms=[row.due_ms if row.state is BACKING_OFF else 0 for row in rows],
        )

    def groups(self) -> list[int]:
        """Of each unfinished step: how many unfinished ones stand before it in a row."""
        depth = [0] * len(self.done)
        for place in self.plan.order:
            for need in self.plan.graph.needs[place]:
                if not self.done[need]:
                    depth[place] = max(depth[place], depth[need] + 1)
        return depth

    def unknown(self, place: int) -> tuple[str, ...]:
        """Effects of a step of which nobody knows whether they happened."""
        journal = (self.run.journal or {}).get(place)
        entries = [effect.entry for effect in journal.effects] if journal is not None else []
        return tuple(
            f"{entry.effect}[{entry.occurrence}]"
            for entry in entries
            if entry.status is EffectStatus.UNKNOWN
        )

    def step(self, place: int, group: int, when: Planned | None) -> PlannedStep:
        """One line of the plan."""
        row, declared = self.run.rows[place], self.plan.steps[place]
        unknown = self.unknown(place)
        doing = self.stuck.get(place)
        if doing is None:
            doing = Doing.REDO if row.epoch or row.closed else Doing.FIRST
            if row.state in _OUT:
                doing = Doing.RUNNING
            elif unknown:
                doing = Doing.CHECK
        return PlannedStep(
            step=declared.name,
            doing=doing,
            state=row.state,
            group=group,
            begin_ms=-1 if when is None else when.begin_ms - self.now_ms,
            end_ms=-1 if when is None else when.end_ms - self.now_ms,
            usual_ms=self.usual[place],
            learned=self.estimates.learned_ms(self.run.head.flow, declared.name) is not None,
            rank_ms=self.left.ranks[place],
            epoch=row.epoch,
            needs=declared.needs,
            depends_on=declared.depends_on,
            unknown=unknown,
            held_by=row.repair.by if row.state is HELD and row.repair is not None else "",
        )


def damaged_of(run: Run, estimates: Estimates, now_ms: int) -> Damaged:
    """What is left of a run and goes by itself, for a forecast of many."""
    return _Look(run, estimates, now_ms).damaged()


def plan_recovery(run: Run, estimates: Estimates, *, now_ms: int, width: int) -> RecoveryPlan:
    """The plan of a live run at log time `now_ms`, with `width` attempts side by side."""
    look = _Look(run, estimates, now_ms)
    width = max(1, width)
    found = forecast([look.damaged()], width=width, now_ms=now_ms)
    when = {planned.place: planned for planned in found.steps}
    groups = look.groups()
    todo = [place for place in look.plan.order if not look.done[place]]
    steps = [look.step(place, groups[place], when.get(place)) for place in todo]
    steps.sort(key=lambda s: (s.begin_ms < 0, s.begin_ms, -s.rank_ms, s.step))
    by_group: dict[int, list[str]] = {}
    for step in sorted(steps, key=lambda s: s.group):
        by_group.setdefault(step.group, []).append(step.step)
    left, head = look.left, run.head
    return RecoveryPlan(
        run_id=run.id,
        flow=head.flow,
        goal=run_goal(look.plan, head),
        state=head.state,
        waiting_for=head.waiting_for,
        digest=followed_digest(look.plan.digest, left.ranks).hex(),
        at_ms=now_ms,
        damaged_since_ms=0 if head.damage is None else head.damage.since_ms,
        lost=_lost(run),
        kept=tuple(look.plan.steps[place].name for place in look.plan.order if look.done[place]),
        steps=tuple(steps),
        groups=tuple(tuple(names) for names in by_group.values()),
        width=width,
        work_ms=left.work_ms,
        path_ms=left.path_ms,
        bound_ms=lower_bound_ms(left.work_ms, left.path_ms, width),
        latest_ms=graham_bound_ms(left.work_ms, left.path_ms, width),
        predicted_ms=max((planned.end_ms - now_ms for planned in found.steps), default=0),
    )


def _lost(run: Run) -> tuple[LostAttempt, ...]:
    return tuple(
        LostAttempt(
            step=run.entry.steps[place].name,
            epoch=row.epoch,
            by=str(row.closed),
            failures=row.failures,
            infra_failures=row.infra,
        )
        for place, row in enumerate(run.rows)
        if row.closed and row.state not in FINAL_STEPS
    )
