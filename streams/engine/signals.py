"""Signals from day one, read off the fold's outputs: recovery, rework, conflicts, escalations.

Counts what this process put out, repeats after a restore included: a signal, not the record. The
record is the transitions topic. Seeing an output costs a dictionary increment; the metrics are
brought up to date when somebody looks (`flush`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Final, Protocol

from dalsegno.schemas.outputs import (
    EffectStatus,
    Escalation,
    Handoff,
    Outcome,
    StepState,
    Transition,
)
from dalsegno.streams.core.actions import Audit, Dispatch, Escalate, Output, PutAside
from dalsegno.streams.core.names import ID_CHARS_MAX
from dalsegno.streams.core.near_limits import NearLimit
from dalsegno.streams.core.signals.meaning import asks, is_damage
from dalsegno.streams.core.step_table import StepInput
from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.diff_log import diff_log
from dalsegno.streams.engine.metrics_catalogue import Metric

_TRACKED_MAX: Final = 10_000
_DECISION: Final = "DecisionMade"
_UNSTARTED: Final = frozenset({StepInput.START_LIMIT, StepInput.RELEASED})
_TALLIES_MAX: Final = 10_000


class Counting(Protocol):
    """Where signals are counted."""

    def count(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Observe in a histogram."""


class _Recent(OrderedDict[object, int | str]):
    """A map that forgets its oldest entries: signals must not cost memory per run."""

    def put(self, key: object, value: int | str) -> None:
        self[key] = value
        if len(self) > _TRACKED_MAX:
            self.popitem(last=False)


class Signals:
    """Sees every output once per process."""

    def __init__(self, counting: Counting) -> None:
        self._counting = counting
        self._diff = diff_log()
        self._flows = _Recent()
        self._broken_since = _Recent()
        self._escalated = _Recent()
        self._tally: Counter[tuple[Metric, str, str]] = Counter()

    def started(self, run_id: str, flow: str) -> None:
        """A start was read: what is said of the run from here on is its flow's. Runs that services
        drive themselves get no handoff, which would say so too.
        """
        if run_id not in self._flows and len(flow) <= ID_CHARS_MAX:
            self._flows.put(run_id, flow)

    def outputs(self, outputs: Iterable[Output]) -> None:
        """The outputs of some events, in order."""
        tally, diff, transition, handoff = self._tally, self._diff, self._transition, self._handoff
        channels: dict[str, int] = {}
        for output in outputs:
            action = output.action
            channel = action.channel
            channels[channel] = channels.get(channel, 0) + 1
            if isinstance(action, Audit):
                transition(action.transition)
                if diff is not None:
                    diff(action.transition)
            elif isinstance(action, Dispatch):
                handoff(action.handoff)
            elif isinstance(action, Escalate):
                self._escalation(action.escalation)
            elif isinstance(action, PutAside):
                tally[catalogue.DEAD_LETTERS, "reason", action.letter.reason] += 1
        for channel, count in channels.items():
            tally[catalogue.OUTPUTS, "channel", channel] += count
        if len(tally) > _TALLIES_MAX:
            self.flush()

    def near(self, limits: Iterable[NearLimit]) -> None:
        """A context was written and is near these limits."""
        for each in limits:
            self._counting.count(
                catalogue.NEAR_LIMIT, limit=each.limit, flow=each.flow, field=each.field
            )

    def flush(self) -> None:
        """Bring the metrics up to date."""
        tally, self._tally = self._tally, Counter()
        for (metric, label, value), amount in tally.items():
            labels = {label: value} if label else {}
            self._counting.count(metric, amount, **labels)

    def _flow(self, run_id: str) -> str:
        return str(self._flows.get(run_id, catalogue.OTHER))

    def _handoff(self, handoff: Handoff) -> None:
        self._tally[catalogue.DISPATCHED, "flow", handoff.flow] += 1
        if handoff.run_id not in self._flows:
            self._flows.put(handoff.run_id, handoff.flow)
        if handoff.epoch > 1:
            self._tally[catalogue.REWORK, "flow", handoff.flow] += 1
        if handoff.effects:
            unknown = sum(entry.status is EffectStatus.UNKNOWN for entry in handoff.effects)
            self._tally[catalogue.EFFECTS_UNKNOWN, "", ""] += unknown

    def _escalation(self, escalation: Escalation) -> None:
        if escalation.reminder:
            self._tally[catalogue.REMINDERS, "flow", escalation.flow] += 1
            return
        if not asks(escalation):
            return
        step = (escalation.run_id, escalation.step)
        self._flows.put(escalation.run_id, escalation.flow)
        self._tally[catalogue.ESCALATIONS, "flow", escalation.flow] += 1
        if step in self._escalated:
            self._tally[catalogue.ESCALATED_AGAIN, "flow", escalation.flow] += 1
        self._escalated.put(step, escalation.at_ms)
        unknown = sum(entry.status is EffectStatus.UNKNOWN for entry in escalation.effects)
        self._tally[catalogue.EFFECTS_UNKNOWN, "", ""] += unknown

    def _transition(self, transition: Transition) -> None:
        if transition.outcome is Outcome.SUPERSEDED:
            self._tally[catalogue.SUPERSEDED, "", ""] += 1
            self._tally[catalogue.CONFLICTS, "flow", self._flow(transition.run_id)] += 1
        elif transition.outcome is Outcome.REFUSED:
            self._tally[catalogue.REFUSALS, "reason", transition.reason] += 1
            self._tally[catalogue.CONFLICTS, "flow", self._flow(transition.run_id)] += 1
        elif transition.cause == _DECISION:
            self._decided(transition)
        elif transition.cause in _UNSTARTED:
            self._tally[catalogue.UNSTARTED, "flow", self._flow(transition.run_id)] += 1
        for change in transition.changes:
            if change.after is StepState.COMPLETED:
                if self._broken_since:
                    self._recovered(transition, change.step)
            elif is_damage(change, transition):
                step = (transition.run_id, change.step)
                if step not in self._broken_since:
                    self._broken_since.put(step, transition.at_ms)

    def _decided(self, transition: Transition) -> None:
        since = self._escalated.get((transition.run_id, transition.step))
        if since is not None:
            took_s = max(0.0, (transition.at_ms - int(since)) / 1_000)
            flow = self._flow(transition.run_id)
            self._counting.observe(catalogue.DECIDED, took_s, flow=flow)

    def _recovered(self, transition: Transition, step: str) -> None:
        since = self._broken_since.pop((transition.run_id, step), None)
        if since is not None:
            took_s = max(0.0, (transition.at_ms - int(since)) / 1_000)
            flow = self._flow(transition.run_id)
            self._counting.observe(catalogue.RECOVERY, took_s, flow=flow)
