"""What is checked after every event of a combined world, and at its rest."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.simulation.actors import ActorReference, Order
from tests.simulation.log import Entry
from tests.simulation.permits import PermitBook, check_views
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.recovery_promises import RecoveryPromises
from tests.simulation.reference import Reference
from tests.simulation.saga_world import SagaChecker
from tests.simulation.seams import Seams
from tests.simulation.suppliers import QuestionBook, is_question

from dalsegno.schemas.control import DecisionMade, FaultPointChanged, PolicySet, QuotaGranted
from dalsegno.schemas.events import RunStarted
from dalsegno.schemas.outputs import Handoff
from dalsegno.streams.core.actions import Action, Audit, Dispatch, Output
from dalsegno.streams.core.faultpoint.declared import dependency_of


class CombinedReference(Reference):
    """The fold of one partition's log, with the accounts of permits and of recovery beside it."""

    def __init__(self, world: Any, number: int) -> None:
        super().__init__(world, number)
        self.book = PermitBook()
        self.recovery = RecoveryPromises(world.policy.recovery_width_max)
        self.questions = QuestionBook()
        self.seams = Seams()

    def on_append(self, entry: Entry) -> None:
        record = self.world.record(self.number, entry)
        event: Any = record.event
        log_ms = max(self.log_ms, entry.at_ms)
        if isinstance(event, FaultPointChanged | QuotaGranted):
            self.world.checker.on_order(event)
        if isinstance(event, RunStarted) and event.run_id in self.world.specs:
            self.recovery.started(self.world.specs[event.run_id].started)
        if isinstance(event, PolicySet):
            # Timers of this record go by the one before, what may go now by the new one.
            new = event.policy.recovery_width_max
            self.recovery.width = (
                max(self.recovery.width, new) if self.recovery.width and new else 0
            )
        self.seams.ahead(self.partition, event)
        self.book.heard(event, log_ms)
        super().on_append(msgspec.structs.replace(entry, event=event))
        self.questions.check(self.stories, self.log_ms)
        self.seams.seen["the supplier is silent and a person is asked"] = self.questions.silent
        self.book.applied(event)
        self.recovery.width = self.partition.policy.recovery_width_max

    def check_time(self, event: Any, live_before: int) -> None:
        if not isinstance(event, DecisionMade):
            # One that takes a run back from where it was put aside finds deadlines that have
            # passed there; the tick that is owed then fires them.
            super().check_time(event, live_before)

    def check_outputs(self, entry: Entry, outputs: list[Output]) -> None:
        """All that came of one record."""
        given = [output for output in outputs if not is_question(output.action)]
        for output in outputs:
            action = output.action
            if is_question(action):
                self.seams.seen["the supplier's queue is asked"] += 1
            elif isinstance(action, Dispatch):
                self.seams.went(action.handoff, permitted=self._permit(action.handoff))
            elif isinstance(action, Audit):
                self.seams.moved(self.partition, entry.event, action.transition)
        check_views(self.partition, entry.at_ms)
        self.recovery.check(self.partition, entry.event, self.log_ms, given)

    def check_action(self, entry: Entry, action: Action) -> None:
        if is_question(action):
            story = self.story(action.handoff.run_id)
            self.questions.asked(story, action.handoff, self.log_ms)
        else:
            super().check_action(entry, action)

    def _permit(self, handoff: Handoff) -> bool:
        names = self.world.plan_step(handoff.run_id, handoff.step).depends_on
        if points := self.book.handed_out(handoff, names):
            key = (handoff.run_id, handoff.step, handoff.epoch)
            self.world.checker.permitted[key] = {dependency_of(point) for point in points}
            self.recovery.permitted.add(key)
        return bool(points)


class CombinedChecker(SagaChecker):
    """`permitted`: attempts that went with permits, and of which dependencies."""

    def __init__(self, world: Any) -> None:
        self.permitted: dict[tuple[str, str, int], set[str]] = {}
        super().__init__(world)

    def on_order(self, order: Order) -> None:
        """An order to a partition is in the events."""
        self.world.actor_of(order.fault_point).on_order(order)

    def is_out(self, run_id: str, step: str, epoch: int) -> bool:
        """Whether an attempt runs, by the log."""
        reference = self.references[self.world.partition_of(run_id)]
        return reference.core_says_in_flight(run_id, step, epoch)

    def window_of(self, dependency: str, since_ms: int) -> int:
        """The largest window that any fault point of a dependency has had since then."""
        actors: list[ActorReference] = self.world.actor_references
        return max(actor.window_of(dependency, since_ms) for actor in actors)

    def at_rest(self) -> None:
        super().at_rest()
        for actor in self.world.actor_references:
            actor.at_rest()
        for reference in self.references:
            assert isinstance(reference, CombinedReference)
            reference.recovery.ended(reference.partition)
            if held := reference.partition.in_flight:
                raise BrokenPromiseError(f"P6: {held} attempts are still in flight at rest")
