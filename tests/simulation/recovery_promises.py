"""What must hold of recovery, whatever happens: a model fed by events and outputs alone."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.promises import BrokenPromiseError
from tests.simulation.reference import by_unit

from dalsegno.schemas.control import RecoveryFrozen, RecoveryReleased
from dalsegno.schemas.events import RunStarted
from dalsegno.schemas.outputs import Handoff, Outcome, StepState, Transition
from dalsegno.schemas.plan import StepPlan, StepRole
from dalsegno.streams.core.actions import Audit, Dispatch, Output
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.recovery.pacing import QUIET_MS, WIDTH_FIRST

FLYING = frozenset({StepState.DISPATCHED, StepState.RUNNING})


@dataclass
class Scope:
    """A freeze as the model sees it. `open_ms`: when its release began, None before."""

    flow: str
    fault_point: str
    rate: int = 0
    open_ms: int | None = None
    went: list[int] = field(default_factory=list)

    def covers(self, flow: str, step: StepPlan) -> bool:
        point_fits = not self.fault_point or self.fault_point in step.depends_on
        return point_fits and self.flow in {"", flow}


class RecoveryPromises:
    """Checks after every event. Raises `BrokenPromiseError`."""

    def __init__(self, width: int) -> None:
        # As the policy in force says.
        self.width = width
        # Attempts that went with a permit: that is a pace of its own.
        self.permitted: set[tuple[str, str, int]] = set()
        self._plans: dict[str, tuple[str, dict[str, StepPlan]]] = {}
        self._scopes: dict[tuple[str, str], Scope] = {}
        self._again: set[tuple[str, str]] = set()
        self._first_ms = 0
        self._last_ms = -QUIET_MS - 1
        self._handed: dict[tuple[str, str], int] = {}
        self._numbers: dict[type, int] = {}

    def started(self, event: RunStarted) -> None:
        """A run is about to start."""
        steps = {step.name: step for step in event.plan.steps}
        self._plans[event.run_id] = (event.flow, steps)

    def restored(self, before: Partition, again: Partition) -> None:
        """A restore is the same state, and has the same next deadlines."""
        if again.parts() != before.parts():
            raise BrokenPromiseError("P2: a restored partition is another one")
        if again.next_log_deadline_ms != before.next_log_deadline_ms:
            raise BrokenPromiseError("P6: a restored partition has another next deadline")
        if turns(again) != turns(before):
            raise BrokenPromiseError("P2: a restored partition has other lines")

    def check(
        self, partition: Partition, event: Any, now_ms: int, outputs: Sequence[Output]
    ) -> None:
        """One event has been applied."""
        if not isinstance(event, RecoveryFrozen):
            self._steered(partition, event, now_ms)
        for action in by_unit([output.action for output in outputs]):
            if isinstance(action, Audit):
                self._moved(action.transition)
            elif isinstance(action, Dispatch):
                self._dispatched(action.handoff, now_ms)
        if isinstance(event, RecoveryFrozen):
            # Timers that this record fired went ahead of it.
            self._steered(partition, event, now_ms)
        for run_id in list(partition.run_ids()):
            for found in partition.previews.unowned(run_id):
                raise BrokenPromiseError(f"P6: {run_id} {found.step} {found.state}: {found.why}")
        self._budgets(partition)

    def _moved(self, transition: Transition) -> None:
        """What ended in a unit makes room for what goes in it."""
        if transition.outcome is Outcome.APPLIED:
            for change in transition.changes:
                if change.after not in FLYING:
                    self._again.discard((transition.run_id, change.step))
        if transition.run_state_after is not None and _final(transition.run_state_after):
            ended = transition.run_id
            self._again = {key for key in self._again if key[0] != ended}

    def _steered(self, partition: Partition, event: Any, now_ms: int) -> None:
        if isinstance(event, RecoveryFrozen) and self._fresh(event):
            scope = Scope(event.flow, event.fault_point)
            self._scopes[event.flow, event.fault_point] = scope
        elif isinstance(event, RecoveryReleased) and self._fresh(event):
            known = self._scopes.get((event.flow, event.fault_point))
            if known is not None:
                known.open_ms, known.rate, known.went = now_ms, event.rate_per_s, []
        open_now = {
            (each.flow, each.fault_point)
            for each in partition.previews.look(limit=1, width=1).freezes
        }
        for key, scope in list(self._scopes.items()):
            if key not in open_now:
                if scope.open_ms is None:
                    raise BrokenPromiseError(f"freeze: {key} has thawed by itself")
                del self._scopes[key]

    def _fresh(self, event: RecoveryFrozen | RecoveryReleased) -> bool:
        fresh = event.number > self._numbers.get(type(event), -1)
        self._numbers[type(event)] = max(event.number, self._numbers.get(type(event), -1))
        return fresh

    def _dispatched(self, handoff: Handoff, now_ms: int) -> None:
        flow, steps = self._plans[handoff.run_id]
        key = handoff.run_id, handoff.step
        if handoff.epoch <= self._handed.get(key, 0):
            raise BrokenPromiseError(f"P4: {key} epoch {handoff.epoch} is given out again")
        self._handed[key] = handoff.epoch
        if handoff.epoch == 1 and steps[handoff.step].role is StepRole.FORWARD:
            return
        for scope in self._scopes.values():
            if scope.open_ms is None and scope.covers(flow, steps[handoff.step]):
                raise BrokenPromiseError(f"freeze: {key} epoch {handoff.epoch} went while frozen")
        self._again.add(key)
        if now_ms - self._last_ms > QUIET_MS and len(self._again) == 1:
            self._first_ms = now_ms
        self._last_ms = now_ms
        width = WIDTH_FIRST << min(40, (now_ms - self._first_ms) // 1_000)
        if self.width:
            width = min(width, self.width)
        if len(self._again) > width and (*key, handoff.epoch) not in self.permitted:
            raise BrokenPromiseError(f"P9: {len(self._again)} recovery attempts out, {width} may")

    def _budgets(self, partition: Partition) -> None:
        for run_id in list(partition.run_ids()):
            view = partition.run(run_id)
            if view is None or run_id not in self._plans:
                continue
            steps = self._plans[run_id][1]
            for step in view.steps:
                retry = steps[step.step].retry
                if step.failures > retry.max_attempts + 1:
                    raise BrokenPromiseError(f"budget: {run_id} {step.step} failed too often")
                if step.infra_failures > retry.max_infra_attempts:
                    raise BrokenPromiseError(f"budget: {run_id} {step.step} was lost too often")

    def ended(self, partition: Partition) -> None:
        """After the calm: nothing is left in a line, and every run that waits waits for people."""
        found = partition.previews.look(limit=1_000, width=4)
        if found.waiting_steps or found.freezes:
            raise BrokenPromiseError(f"left behind: {found.lines} {found.freezes}")
        for run_id in list(partition.run_ids()):
            view = partition.run(run_id)
            if view is not None and view.kind == "run" and view.waiting_for != "person":
                raise BrokenPromiseError(f"left behind: {run_id} is {view.state}")
        if found.recovering != 0:
            raise BrokenPromiseError(f"pace: {found.recovering} attempts are still counted")


def turns(partition: Partition) -> dict[str, list[tuple[str, int]]]:
    """For each line, who would have the next turns, until it is empty."""
    found = {}
    holds = partition._now.recovery.holds
    for name in holds.lines():
        line = deepcopy(holds.line(name))
        assert line is not None, "a line has a name"
        found[name] = [taken for _ in range(len(line)) if (taken := line.take(partition.log_ms))]
    return found


def _final(state: str) -> bool:
    # Of one that was put aside nothing is out either.
    return state in {"succeeded", "failed", "compensated", "cancelled", "expired", "quarantined"}
