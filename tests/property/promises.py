"""The promises P1 and P3 to P7, checked against what went in and what came out of the fold.

A model of its own, told nothing by the fold but its outputs: the facts of each run, the epochs that
were given out, the effects that were confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from tests.property.folding import Folding
from tests.unit.core_parts.documents import model

from dalsegno.schemas.control import ControlEvent
from dalsegno.schemas.events import (
    EffectConfirmed,
    InformationSupplied,
    PlanExtended,
    RunEvent,
    RunStarted,
    StepCompleted,
    StepStarted,
)
from dalsegno.schemas.outputs import EffectStatus, Handoff, Outcome, RunState, StepState, Transition
from dalsegno.schemas.plan import MergeRule, Plan, Risk, StepPlan, StepRole
from dalsegno.streams.core.actions import Audit, Dispatch, Output, PutAside
from dalsegno.streams.core.query import RunView
from dalsegno.streams.core.record import Unreadable

unpack = msgspec.msgpack.decode
pack = msgspec.msgpack.encode
_NOT_KEPT = frozenset({"not_intended", "unknown_step", "unknown_epoch", "run_ended"})
_HELD = frozenset({RunState.PAUSED, RunState.QUARANTINED})
_FLYING = frozenset({StepState.DISPATCHED, StepState.RUNNING})
_WITH_DEADLINE = frozenset(
    {StepState.DISPATCHED, StepState.BACKING_OFF, StepState.MISSING_INFO, StepState.ESCALATED}
)


@dataclass
class Story:
    """What the model knows of one run."""

    plan: Plan
    context: dict
    plan_open: bool = False
    epochs: dict[str, int] = field(default_factory=dict)
    handoffs: dict[tuple[str, int], Handoff] = field(default_factory=dict)
    completed: set[str] = field(default_factory=set)
    confirmed: dict[tuple[str, str, int], bytes] = field(default_factory=dict)

    @property
    def steps(self) -> dict[str, StepPlan]:
        return {step.name: step for step in self.plan.steps}


class Promises:
    """Appends events to a folding and checks every promise after each."""

    def __init__(self) -> None:
        self.folding = Folding()
        self.stories: dict[str, Story] = {}
        self.before: dict[str, RunView | None] = {}

    def append(self, event: RunEvent | ControlEvent | Unreadable) -> list[Output]:
        """Appends the event, applies it, checks."""
        partition = self.folding.partition
        counts, waiting = partition.counts, partition.waiting
        before = self.before = {run_id: partition.run(run_id) for run_id in self.stories}
        outputs = self.folding.append(event)
        self._check_counts(counts, waiting)
        transitions = [o.action.transition for o in outputs if isinstance(o.action, Audit)]
        self._follow_all(outputs)
        self._check_sequences(outputs)
        for run_id in self.stories:
            view = partition.run(run_id)
            if view is not None:
                touched = [t for t in transitions if t.run_id == run_id]
                self._check_view(view, before.get(run_id), touched)
        self._check_deadlines()
        return outputs

    # P1

    def _check_counts(self, counts: dict[Outcome, int], waiting: int) -> None:
        partition = self.folding.partition
        assert partition.delivered == len(self.folding.log) == partition.position
        gained = {o: partition.counts[o] - counts[o] for o in Outcome}
        assert all(gain >= 0 for gain in gained.values()), f"an outcome was taken back: {gained}"
        assert sum(gained.values()) + partition.waiting - waiting == 1

    def _check_sequences(self, outputs: list[Output]) -> None:
        offset = len(self.folding.log) - 1
        assert [o.sequence.index for o in outputs] == list(range(len(outputs)))
        assert all(o.sequence.offset == offset for o in outputs)
        counts = self.folding.partition.output_counts
        for output in reversed(outputs):
            channel = output.action.channel
            assert output.sequence.count == counts[channel]
            counts[channel] -= 1

    # P3, P4, P5: what transitions say has happened

    def _follow_all(self, outputs: list[Output]) -> None:
        """Unit by unit: a unit's handoffs stand before its transition."""
        given: list[Handoff] = []
        for output in outputs:
            action = output.action
            if isinstance(action, Dispatch):
                given.append(action.handoff)
            elif isinstance(action, PutAside):
                assert action.letter.reason != "apply_raised", action.letter.detail
            elif isinstance(action, Audit):
                self._follow(action.transition)
                for handoff in given:
                    self._given(handoff)
                given = []
        assert not given, "a handoff without a transition"

    def _event_of(self, transition: Transition) -> RunEvent | None:
        event = self.folding.log[transition.cause_offset].event
        if type(event).__name__ != transition.cause:
            return None
        assert isinstance(event, RunEvent | ControlEvent)
        return event if isinstance(event, RunEvent) else None

    def _follow(self, transition: Transition) -> None:
        run_id = transition.run_id
        assert transition.cause != "apply raised", f"the fold raised: {transition.detail}"
        event = self._event_of(transition)
        if isinstance(event, RunStarted) and transition.outcome is Outcome.APPLIED:
            self._check_first_start(run_id)
            self.stories[run_id] = Story(event.plan, unpack(event.context), event.more)
            return
        story = self.stories.get(run_id)
        if story is None:
            assert transition.outcome is not Outcome.APPLIED
            return
        if transition.outcome is not Outcome.APPLIED:
            assert transition.changes == ()
            assert transition.diff == b""
            assert transition.run_version_before == transition.run_version_after
            assert transition.run_state_before == transition.run_state_after
        for change in transition.changes:
            assert change.step not in story.completed, f"P4: {change.step} moved after completion"
            if change.after is StepState.COMPLETED:
                story.completed.add(change.step)
        if transition.outcome is Outcome.APPLIED and event is not None:
            self._applied(story, transition, event)
        if isinstance(event, EffectConfirmed):
            self._confirmed(story, event, transition)

    def _check_first_start(self, run_id: str) -> None:
        """An id may be used again only when nothing is left of the run that had it."""
        held = self.before.get(run_id)
        if held is not None and held.kind == "ended":
            assert held.expires_ms <= self.folding.partition.log_ms, "an ended run started again"
        else:
            assert held is None or held.kind not in _LIVE, "a run started twice"

    def _applied(self, story: Story, transition: Transition, event: RunEvent) -> None:
        if isinstance(event, StepStarted) and event.epoch:
            at_ms = self.folding.log[transition.cause_offset].at_ms
            handoff = story.handoffs[event.step, event.epoch]
            assert at_ms < handoff.start_by_ms, "started after its start limit"
            assert event.epoch == story.epochs[event.step], "a superseded epoch started"
        elif isinstance(event, StepCompleted):
            done = any(c.after is StepState.COMPLETED for c in transition.changes)
            if done:
                assert event.epoch == story.epochs.get(event.step, 0)
                _write(story, event)
            else:
                assert transition.diff == b"", "P5: a failed attempt left a trace"
        elif isinstance(event, InformationSupplied):
            story.context = model(story.context, unpack(event.ops))
        elif isinstance(event, PlanExtended):
            steps = (*story.plan.steps, *event.steps)
            story.plan = msgspec.structs.replace(story.plan, steps=steps)
            story.plan_open = not event.last

    def _confirmed(self, story: Story, event: EffectConfirmed, transition: Transition) -> None:
        # Whoever says so: P3 lets a superseded attempt change the journal, and nothing else.
        if transition.reason not in _NOT_KEPT:
            key = (event.step, event.effect, event.occurrence)
            story.confirmed.setdefault(key, event.result)

    def _given(self, handoff: Handoff) -> None:
        story = self.stories[handoff.run_id]
        name = handoff.step
        step = story.steps[name]
        assert name not in story.completed, "P4: a completed step is given out again"
        assert set(step.needs) <= story.completed, "given out before what it needs"
        assert step.risk is Risk.NONE, "P7"
        assert handoff.epoch == story.epochs.get(name, 0) + 1, "P3: an epoch is left out or reused"
        story.epochs[name] = handoff.epoch
        story.handoffs[name, handoff.epoch] = handoff
        inputs = {field: story.context[field] for field in step.reads}
        assert handoff.inputs == pack(inputs), "P5: other inputs than the declared reads"
        known = {
            (name, entry.effect, entry.occurrence): entry.result
            for entry in handoff.effects
            if entry.status is EffectStatus.CONFIRMED
        }
        mine = {key: result for key, result in story.confirmed.items() if key[0] == name}
        assert known == mine, "P4: the journal in the handoff is not what was confirmed"

    # P5, P6: what the fold says of its runs

    def _check_view(
        self, view: RunView, before: RunView | None, transitions: list[Transition]
    ) -> None:
        story = self.stories[view.run_id]
        if view.kind == "archived":
            return
        if view.kind != "run":
            assert view.state is None or view.state in _FINAL
            return
        secrets = set(story.plan.secrets)
        shown = {k: v for k, v in sorted(story.context.items()) if k not in secrets}
        assert view.context == pack(shown), "P5: the context is not what was written"
        known = before is not None and before.kind != "archived"
        if known and not any(t.outcome is Outcome.APPLIED for t in transitions):
            assert _facts(view) == _facts(before), "P3: a report without effect changed something"
        self._check_owned(view, story)

    def _check_owned(self, view: RunView, story: Story) -> None:
        held = bool(view.gate) or story.plan_open or view.state in _HELD
        flying = sum(step.state in _FLYING and bool(step.epoch) for step in view.steps)
        width = self.folding.partition.policy.step_concurrency_max
        assert flying <= width
        moving = False
        for step in view.steps:
            plan = story.steps[step.step]
            needs_met = set(plan.needs) <= story.completed
            if step.state is StepState.COMPLETED or plan.role is StepRole.COMPENSATION:
                continue
            if step.state is StepState.PENDING:
                assert not needs_met, f"P6: {step.step} waits for nothing"
            elif step.state in _WITH_DEADLINE:
                clock_stopped = not view.expires_ms and story.plan.stop_clocks_for_people
                asks = step.state in {StepState.MISSING_INFO, StepState.ESCALATED}
                assert step.due_ms or (clock_stopped and asks), f"P6: {step.step} has no deadline"
            elif step.state is StepState.READY and plan.queue:
                assert held or flying == width, f"P6: {step.step} is ready and stays here"
            moving = True
        if view.state is not RunState.QUARANTINED:
            assert moving or story.plan_open, "P6: a run without a step to wait for"
            assert view.expires_ms or story.plan.stop_clocks_for_people, "P6: no time to live"

    def _check_deadlines(self) -> None:
        partition = self.folding.partition
        log, live = partition.next_log_deadline_ms, partition.next_live_deadline_ms
        assert log is None or log > partition.log_ms, "a deadline passed and did not fire"
        assert live is None or live > partition.live_ms, "a live deadline passed and did not fire"
        if log is None and live is None:
            assert partition.open_runs == len(partition.archived.wanted())


_LIVE = frozenset({"run", "archived"})
_FINAL = frozenset(
    {
        RunState.SUCCEEDED,
        RunState.FAILED,
        RunState.COMPENSATED,
        RunState.CANCELLED,
        RunState.EXPIRED,
    }
)


def _facts(view: RunView) -> tuple:
    steps = tuple((s.step, s.state, s.epoch, s.failures, s.infra_failures) for s in view.steps)
    return view.state, view.run_version, view.context, view.gate, view.flags, steps


def _write(story: Story, event: StepCompleted) -> None:
    ops = unpack(event.ops)
    rules = {merge.field: merge.rule for merge in story.plan.merges}
    step = story.steps[event.step]
    for op in ops:
        name = op[1][0]
        assert name in (*step.writes, *step.may_write), "P5: an undeclared write"
        rule = rules.get(name)
        if rule is MergeRule.MAX:
            old = story.context.get(name)
            story.context[name] = op[2] if old is None else max(old, op[2])
        elif rule is MergeRule.COLLECT:
            both = {**story.context.get(name, {}), event.step: op[2]}
            story.context[name] = dict(sorted(both.items()))
        else:
            story.context = model(story.context, [op])
