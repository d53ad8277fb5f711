"""Signals from day one, read off the fold's outputs: recovery time, rework, conflicts, escalations.

Counts what this process put out, repeats after a restore included: a signal, not the record. The
record is the transitions topic.
"""

from __future__ import annotations

from collections import OrderedDict
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
from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.metrics_catalogue import Metric

_TRACKED_MAX: Final = 10_000
_BROKEN: Final = frozenset(
    {StepState.BACKING_OFF, StepState.MISSING_INFO, StepState.ESCALATED, StepState.READY}
)


class Counting(Protocol):
    """Where signals are counted."""

    def count(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Observe in a histogram."""


class _Recent(OrderedDict[object, object]):
    """A map that forgets its oldest entries: signals must not cost memory per run."""

    def put(self, key: object, value: object) -> None:
        self[key] = value
        if len(self) > _TRACKED_MAX:
            self.popitem(last=False)


class Signals:
    """Sees every output once per process."""

    def __init__(self, counting: Counting) -> None:
        self._counting = counting
        self._flows = _Recent()
        self._broken_since = _Recent()
        self._escalated = _Recent()
        self._pending: dict[str, int] = {}

    def outputs(self, outputs: Iterable[Output]) -> None:
        """The outputs of one event."""
        for output in outputs:
            action = output.action
            channel = action.channel
            self._pending[channel] = self._pending.get(channel, 0) + 1
            kind = type(action)
            if kind is Audit:
                self._transition(action.transition)  # type: ignore[union-attr]
            elif kind is Dispatch:
                self._handoff(action.handoff)  # type: ignore[union-attr]
            elif kind is Escalate:
                self._escalation(action.escalation)  # type: ignore[union-attr]
            elif kind is PutAside:
                self._counting.count(catalogue.DEAD_LETTERS, reason=action.letter.reason)  # type: ignore[union-attr]

    def flush(self) -> None:
        """Bring the output counters up to date; when somebody looks."""
        pending, self._pending = self._pending, {}
        for channel, amount in pending.items():
            self._counting.count(catalogue.OUTPUTS, amount, channel=channel)

    def _flow(self, run_id: str) -> str:
        return str(self._flows.get(run_id, catalogue.OTHER))

    def _handoff(self, handoff: Handoff) -> None:
        self._flows.put(handoff.run_id, handoff.flow)
        count = self._counting.count
        count(catalogue.DISPATCHED, flow=handoff.flow)
        if handoff.epoch > 1:
            count(catalogue.REWORK, flow=handoff.flow)
        unknown = sum(entry.status is EffectStatus.UNKNOWN for entry in handoff.effects)
        if unknown:
            count(catalogue.EFFECTS_UNKNOWN, unknown)

    def _escalation(self, escalation: Escalation) -> None:
        count, step = self._counting.count, (escalation.run_id, escalation.step)
        count(catalogue.ESCALATIONS, flow=escalation.flow)
        if step in self._escalated:
            count(catalogue.ESCALATED_AGAIN, flow=escalation.flow)
        self._escalated.put(step, True)  # noqa: FBT003 - a set with an order
        unknown = sum(entry.status is EffectStatus.UNKNOWN for entry in escalation.effects)
        if unknown:
            count(catalogue.EFFECTS_UNKNOWN, unknown)

    def _transition(self, transition: Transition) -> None:
        count, run_id = self._counting.count, transition.run_id
        if transition.outcome is Outcome.SUPERSEDED:
            count(catalogue.SUPERSEDED)
            count(catalogue.CONFLICTS, flow=self._flow(run_id))
        elif transition.outcome is Outcome.REFUSED:
            count(catalogue.REFUSALS, reason=transition.reason)
            count(catalogue.CONFLICTS, flow=self._flow(run_id))
        for change in transition.changes:
            step = (run_id, change.step)
            if change.after is StepState.COMPLETED:
                since = self._broken_since.pop(step, None)
                if since is not None:
                    took_s = max(0.0, (transition.at_ms - int(str(since))) / 1_000)
                    self._counting.observe(catalogue.RECOVERY, took_s, flow=self._flow(run_id))
            elif (
                change.after in _BROKEN
                and change.before is not StepState.PENDING
                and step not in self._broken_since
            ):
                self._broken_since.put(step, transition.at_ms)
