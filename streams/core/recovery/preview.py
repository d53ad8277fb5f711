"""What a partition would bring back, and in which order: looked at, not touched."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.outputs import Escalation
from dalsegno.streams.core.faultpoint.declared import dependency_of
from dalsegno.streams.core.faultpoint.standing import PointView
from dalsegno.streams.core.moment import Moment
from dalsegno.streams.core.people.current import still_asked
from dalsegno.streams.core.recovery.forecast import forecast
from dalsegno.streams.core.recovery.freezing import Freeze
from dalsegno.streams.core.recovery.holding import FROZEN, PACED, POINT
from dalsegno.streams.core.recovery.plan import RecoveryPlan, damaged_of, plan_recovery
from dalsegno.streams.core.recovery.ranks import lower_bound_ms
from dalsegno.streams.core.recovery.unowned import Unowned
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import Run

# Runs that one preview forecasts: each of them is read and scheduled.
RUNS_MAX: Final = 1_000
# Turns that are looked at for each run that is shown.
_LOOKED_AT: Final = 4


class LineView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line and how many steps wait in it."""

    line: str
    steps: int


class ScopeView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A scope that is frozen, or being released."""

    flow: str
    fault_point: str
    since_ms: int
    reason: str
    by: str
    releasing: bool
    rate_per_s: int


class RunPreview(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run of the preview. `begin_ms`, `end_ms`: predicted, from now on. `steps`: that wait."""

    run_id: str
    flow: str
    steps: tuple[str, ...]
    depends_on: tuple[str, ...]
    waited_ms: int
    work_ms: int
    begin_ms: int
    end_ms: int


class Preview(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What would run, in this order. `waiting_runs`, `waiting_steps`, `work_ms` are of all that
    waits in the scope; the rest is of the runs that are shown. `frozen_number` and
    `released_number`: of the last control event of each kind.
    """

    partition: int
    at_ms: int
    lines: tuple[LineView, ...]
    freezes: tuple[ScopeView, ...]
    waiting_runs: int
    waiting_steps: int
    work_ms: int
    runs: tuple[RunPreview, ...]
    depends_on: tuple[tuple[str, int], ...]
    width: int
    bound_ms: int
    predicted_ms: int
    recovering: int
    frozen_number: int
    released_number: int


class Figures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Counts for metrics. `held`: steps by kind of line. `frozen_ms`: of the oldest freeze."""

    held: dict[str, int]
    recovering: int
    frozen_ms: int


class Previews:
    """Looks at a partition's recovery. Changes nothing but what is read back from its bytes."""

    def __init__(self, now: Moment, runs: Runs, numbers: dict[str, int]) -> None:
        self._now = now
        self._runs = runs
        self._numbers = numbers

    def plan(self, run_id: str, width: int) -> RecoveryPlan | None:
        """The recovery plan of a live run; None when there is no such run."""
        run = self._runs.get(run_id)
        if not isinstance(run, Run):
            return None
        estimates = self._now.recovery.estimates
        return plan_recovery(run, estimates, now_ms=self._now.log_ms, width=width)

    def figures(self) -> Figures:
        """In constant time but for the number of lines."""
        recovery, log_ms = self._now.recovery, self._now.log_ms
        held = {"freeze": 0, "fault point": 0, "turn": 0}
        for by, count in recovery.holds.lines().items():
            held[_kind_of(by)] += count
        since = [freeze.since_ms for freeze in recovery.freezes if not freeze.batch]
        return Figures(
            held=held,
            recovering=recovery.pace.in_flight,
            frozen_ms=log_ms - min(since, default=log_ms),
        )

    def points(self) -> list[PointView]:
        """The fault points that are not healthy, by name."""
        found = [
            PointView(
                name=view.name,
                dependency=dependency_of(view.name),
                state=view.state,
                window=view.window,
                waiting=self._now.points.waiting(view.name),
                number=view.seen,
            )
            for view in self._now.points.views.values()
            if view.holds
        ]
        return sorted(found, key=lambda point: point.name)

    def unowned(self, run_id: str) -> list[Unowned]:
        """What of a run waits without owner, deadline or next action (P6): nothing should."""
        return self._runs.unowned(run_id, self._now.policy.step_concurrency_max)

    def still_asked(self, package: Escalation) -> bool:
        """Whether a package still asks what its run asks. Only of events that were applied."""
        return still_asked(self._runs.get(package.run_id), package, self._now.log_ms)

    def look(self, *, flow: str = "", fault_point: str = "", limit: int, width: int) -> Preview:
        """What waits in a scope. `width`: attempts side by side."""
        recovery, log_ms = self._now.recovery, self._now.log_ms
        width = max(1, width)
        lines = [by for by in recovery.holds.lines() if _in_scope(by, fault_point)]
        first = self._first(lines, flow, min(limit, RUNS_MAX))
        shown = [run for run_id in first if isinstance(run := self._runs.get(run_id), Run)]
        found = forecast(
            [damaged_of(run, recovery.estimates, log_ms) for run in shown],
            width=width,
            now_ms=log_ms,
        )
        begins: dict[str, int] = {}
        for planned in found.steps:
            begins.setdefault(planned.run_id, planned.begin_ms - log_ms)
        runs = [
            self._preview(run, lines, begins.get(run.id, 0), found.whole_ms[run.id] - log_ms)
            for run in shown
        ]
        depends: dict[str, int] = {}
        for each in runs:
            for name in each.depends_on:
                depends[name] = depends.get(name, 0) + 1
        waiting = self._waiting(lines)
        paths = [0 if run.head.damage is None else run.head.damage.expected_ms for run in shown]
        work = sum(waiting.values())
        return Preview(
            partition=self._now.partition,
            at_ms=log_ms,
            lines=tuple(LineView(line=by, steps=recovery.holds.waiting(by)) for by in lines),
            freezes=tuple(map(_scope, recovery.freezes)),
            waiting_runs=len(waiting),
            waiting_steps=sum(recovery.holds.waiting(by) for by in lines),
            work_ms=work,
            runs=tuple(sorted(runs, key=lambda run: (run.begin_ms, run.end_ms, run.run_id))),
            depends_on=tuple(sorted(depends.items())),
            width=width,
            bound_ms=lower_bound_ms(work, max(paths, default=0), width),
            predicted_ms=max((run.end_ms for run in runs), default=0),
            recovering=recovery.pace.in_flight,
            frozen_number=self._numbers.get("RecoveryFrozen", 0),
            released_number=self._numbers.get("RecoveryReleased", 0),
        )

    def _first(self, lines: list[str], flow: str, limit: int) -> list[str]:
        """The first runs of the lines, in the order in which they would go."""
        found: dict[str, None] = {}
        for by in lines:
            line = self._now.recovery.holds.line(by)
            # Of another flow, or of a run that is listed already: so more than are shown.
            for run_id, _ in line.turns(self._now.log_ms, _LOOKED_AT * limit) if line else ():
                run = self._runs.get(run_id)
                if isinstance(run, Run) and (not flow or run.head.flow == flow):
                    found[run_id] = None
        return list(found)[:limit]

    def _waiting(self, lines: list[str]) -> dict[str, int]:
        """Runs that wait in the lines, and the work that remains of each."""
        found: dict[str, int] = {}
        for by in lines:
            line = self._now.recovery.holds.line(by)
            for run_id, standing in line.standings() if line else ():
                found[run_id] = standing.work_ms
        return found

    def _preview(self, run: Run, lines: list[str], begin_ms: int, end_ms: int) -> RunPreview:
        steps = run.entry.steps
        held = [
            place
            for place, row in enumerate(run.rows)
            if row.repair is not None and row.repair.by in lines
        ]
        damage = run.head.damage
        return RunPreview(
            run_id=run.id,
            flow=run.head.flow,
            steps=tuple(steps[place].name for place in held),
            depends_on=tuple(
                dict.fromkeys(name for place in held for name in steps[place].depends_on)
            ),
            waited_ms=0 if damage is None else self._now.log_ms - damage.since_ms,
            work_ms=0 if damage is None else damage.work_ms,
            begin_ms=begin_ms,
            end_ms=end_ms,
        )


def _kind_of(line: str) -> str:
    if line.startswith(FROZEN):
        return "freeze"
    return "fault point" if line.startswith(POINT) else "turn"


def _scope(freeze: Freeze) -> ScopeView:
    return ScopeView(
        flow=freeze.flow,
        fault_point=freeze.fault_point,
        since_ms=freeze.since_ms,
        reason=freeze.reason,
        by=freeze.by,
        releasing=freeze.batch > 0,
        rate_per_s=freeze.rate_per_s,
    )


def _in_scope(line: str, fault_point: str) -> bool:
    if not fault_point:
        return line.startswith((FROZEN, POINT)) or line == PACED
    if line.startswith(POINT):
        point = line[len(POINT) :]
        return point == fault_point or point.startswith(fault_point + "/")
    return line.startswith(FROZEN) and line.endswith(f":{fault_point}")
