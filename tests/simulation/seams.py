"""Counts where parts of the product meet in a world: a seam that never comes up proves nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.simulation.suppliers import QUEUE

from dalsegno.schemas.control import (
    BreakerState,
    DecisionMade,
    FaultPointChanged,
    PolicySet,
    QuotaGranted,
    RecoveryReleased,
    RulesChanged,
)
from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    FailureType,
    InformationSupplied,
    RunPaused,
    StepFailed,
)
from dalsegno.schemas.outputs import Handoff, Outcome, RunState, StepState, Transition
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Unreadable
from dalsegno.streams.core.recovery.holding import FROZEN, POINT
from dalsegno.streams.core.runstate import Run

SEAMS = (
    "a compensation goes with a permit",
    "a compensation goes while nothing holds it",
    "a compensation is held by a fault point",
    "a compensation is held by a freeze",
    "a step is in a freeze, then in a fault point's line",
    "an effect comes late while the run goes back",
    "a decision is taken on a run that goes back",
    "a decision comes when the run has ended",
    "a decision is stale and the question is asked again",
    "a second decision hears the first",
    "a decision names another digest",
    "a forged decision is a dead letter",
    "a decision is part of a list",
    "a package is closed because the run turned round",
    "a fact is supplied while the run goes back",
    "a run is paused while it goes back",
    "a run is paused while a step is held",
    "a deadline passes while the run is paused",
    "nobody answers and the run goes back",
    "a release comes while a breaker is open",
    "a breaker closes while recovery is frozen",
    "permits come while recovery is frozen",
    "a policy changes while recovery is frozen",
    "a policy changes while a fault point holds",
    "rules change while a fault point holds",
    "permits come after a restore",
    "a run is put aside while a step of it is held",
    "a retry of a person waits for a permit",
    "an approved step waits for a permit",
    "an outage outlasts the time to live",
    "an attempt is out when the time to live is over",
    "a step runs again for a fact",
    "the supplier's queue is asked",
    "the supplier answers",
    "the supplier answers after a person was asked",
    "the supplier answers while the run goes back",
    "the supplier answers while the run is paused",
    "the supplier is silent and a person is asked",
    "what drives itself fails by a service",
)


class Seams:
    """What came up on one partition."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.restored = False
        self._line: dict[tuple[str, int], str] = {}
        self._retried: set[tuple[str, str]] = set()
        self._approved: set[tuple[str, str]] = set()

    def ahead(self, partition: Partition, event: Any) -> None:
        """An event is about to be applied."""
        freezes = partition._now.recovery.freezes
        frozen = any(not freeze.batch for freeze in freezes)
        views = partition._now.points.views.values()
        holding = any(view.holds for view in views)
        if isinstance(event, FaultPointChanged) and frozen and event.state is BreakerState.CLOSED:
            self.seen["a breaker closes while recovery is frozen"] += 1
        elif isinstance(event, QuotaGranted):
            self.seen["permits come while recovery is frozen"] += frozen
            self.seen["permits come after a restore"] += self.restored
            self.restored = False
        elif isinstance(event, PolicySet):
            self.seen["a policy changes while recovery is frozen"] += frozen
            self.seen["a policy changes while a fault point holds"] += holding
        elif isinstance(event, RulesChanged):
            self.seen["rules change while a fault point holds"] += holding
        elif isinstance(event, RecoveryReleased):
            opened = any(view.state is BreakerState.OPEN for view in views)
            self.seen["a release comes while a breaker is open"] += opened
        elif isinstance(event, Unreadable) and event.run_id:
            self.seen["a forged decision is a dead letter"] += 1
        else:
            self._of_run(partition, event)

    def _of_run(self, partition: Partition, event: Any) -> None:
        run = partition._runs.get(getattr(event, "run_id", ""))
        if not isinstance(run, Run):
            return
        back = run.head.saga is not None
        held = any(row.state is StepState.HELD for row in run.rows)
        if isinstance(event, EffectIntended | EffectConfirmed):
            row = run.rows[run.entry.plan.index[event.step]]
            late = back and event.epoch <= row.epoch and row.flight is None
            self.seen["an effect comes late while the run goes back"] += late
        elif isinstance(event, StepFailed):
            by_service = event.epoch == 0 and event.failure_type is FailureType.DEPENDENCY
            self.seen["what drives itself fails by a service"] += by_service
        elif isinstance(event, InformationSupplied):
            self.seen["a fact is supplied while the run goes back"] += back
            if event.origin == QUEUE:
                self._supplied(run, event, back=back)
        elif isinstance(event, RunPaused):
            self.seen["a run is paused while it goes back"] += back
            self.seen["a run is paused while a step is held"] += held

    def _supplied(self, run: Run, event: InformationSupplied, *, back: bool) -> None:
        row = run.rows[run.entry.plan.index[event.information_id.partition("#")[0]]]
        waits = row.state is StepState.MISSING_INFO
        asked = row.handled is not None and row.handled.ask is not None
        self.seen["the supplier answers"] += waits and not asked
        self.seen["the supplier answers after a person was asked"] += waits and asked
        self.seen["the supplier answers while the run goes back"] += back
        self.seen["the supplier answers while the run is paused"] += waits and run.head.paused

    def moved(self, partition: Partition, event: Any, change: Transition) -> None:
        """A transition came of an event."""
        run = partition._runs.get(change.run_id)
        back = isinstance(run, Run) and run.head.saga is not None
        if change.cause == "DecisionMade" and isinstance(event, DecisionMade):
            self._decided(event, change, back=back)
        if change.cause == "apply raised":
            before = [line for (run_id, _), line in self._line.items() if run_id == change.run_id]
            self.seen["a run is put aside while a step of it is held"] += any(before)
        if change.cause.startswith("timer:") and change.run_state_before is RunState.PAUSED:
            self.seen["a deadline passes while the run is paused"] += 1
        if change.cause == "timer:answer_by" and back:
            self.seen["nobody answers and the run goes back"] += 1
        if change.reason == "outage_outlasted_ttl":
            self.seen["an outage outlasts the time to live"] += 1
            out = {StepState.DISPATCHED, StepState.RUNNING}
            self.seen["an attempt is out when the time to live is over"] += any(
                each.before in out and each.after is StepState.ESCALATED for each in change.changes
            )
        if not back and any(
            each.before is StepState.COMPLETED and each.after is not StepState.COMPLETED
            for each in change.changes
        ):
            self.seen["a step runs again for a fact"] += 1
        asking = {StepState.ESCALATED, StepState.AWAITING_APPROVAL, StepState.MISSING_INFO}
        if back and any(
            each.before in asking and each.after in {StepState.COMPENSATING, StepState.SKIPPED}
            for each in change.changes
        ):
            self.seen["a package is closed because the run turned round"] += 1
        if isinstance(run, Run):
            self._held(run, back=back)

    def _decided(self, event: DecisionMade, change: Transition, *, back: bool) -> None:
        if change.outcome is Outcome.APPLIED:
            self.seen["a decision is taken on a run that goes back"] += back
            self.seen["a decision is part of a list"] += bool(event.bulk_id)
            if event.decision in {"retry", "edit", "supply"}:
                self._retried.add((change.run_id, event.step))
            if event.decision == "approve":
                self._approved.add((change.run_id, event.step))
        said = {
            "run_ended": "a decision comes when the run has ended",
            "package_moved": "a decision is stale and the question is asked again",
            "already_decided": "a second decision hears the first",
            "other_package": "a decision names another digest",
        }.get(change.reason)
        if said:
            self.seen[said] += 1

    def _held(self, run: Run, *, back: bool) -> None:
        for place, row in enumerate(run.rows):
            by = row.repair.by if row.state is StepState.HELD and row.repair is not None else ""
            before = self._line.get((run.id, place), "")
            if by == before:
                continue
            self._line[run.id, place] = by
            point = by.startswith(POINT)
            self.seen["a compensation is held by a fault point"] += back and point
            self.seen["a compensation is held by a freeze"] += back and by.startswith(FROZEN)
            self.seen["a step is in a freeze, then in a fault point's line"] += (
                point and before.startswith(FROZEN)
            )
            name = (run.id, run.entry.steps[place].name)
            self.seen["a retry of a person waits for a permit"] += point and name in self._retried
            self.seen["an approved step waits for a permit"] += point and name in self._approved

    def went(self, handoff: Handoff, *, permitted: bool) -> None:
        """A handoff was given out."""
        if handoff.undoes:
            how = "with a permit" if permitted else "while nothing holds it"
            self.seen[f"a compensation goes {how}"] += 1
