"""Services that run their own steps and only report them: epoch 0, attempts of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.body import write_ops
from tests.simulation.clock import Process, Step
from tests.simulation.log import Entry, LogPartition, Producer

from dalsegno.schemas.events import FailureType, StepCompleted, StepFailed, StepStarted
from dalsegno.schemas.outputs import StepState
from dalsegno.schemas.plan import RecoverPolicy, StepPlan
from dalsegno.streams.core.actions import Audit

if TYPE_CHECKING:
    from tests.simulation.world import World

# In a row, until one completes.
ATTEMPTS = 4


class Services:
    """Follows the transitions, as a service would that is told when its turn has come."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process = Process(world.scheduler, "services")
        self.producer = Producer(world.network, self.process)
        self.begun: dict[tuple[str, str], bool] = {}
        self.gone: set[tuple[str, str]] = set()
        for log in world.outputs["transitions"]:
            log.listeners.append(self.on_transition)

    def on_transition(self, log: LogPartition, entry: Entry) -> None:
        action = entry.event
        if not isinstance(action, Audit) or action.transition.run_id not in self.world.specs:
            return
        run_id = action.transition.run_id
        for change in action.transition.changes:
            plan = self.world.plan_step(run_id, change.step)
            place = (run_id, change.step)
            if change.after is StepState.READY and not plan.queue and place not in self.begun:
                self.begun[place] = True
                self.process.spawn(self.serve(run_id, plan), delay_ms=self.world.network.delay())

    def serve(self, run_id: str, plan: StepPlan, first: int = 1) -> Step:
        """Attempts of the service's own, each with a higher number, until one completes."""
        rng, odds = self.world.rng, self.world.odds
        for attempt in range(first, first + ATTEMPTS):
            name: dict[str, Any] = {
                "run_id": run_id,
                "step": plan.name,
                "epoch": 0,
                "attempt": attempt,
                "source": "service",
                "reply_to": "service",
            }
            yield from self.say(StepStarted(**name, worker="service"))
            yield rng.randrange(1, odds.work_ms)
            calm = self.world.network.calm
            if rng.random() < odds.hang and not calm and plan.recover is not RecoverPolicy.NOTIFY:
                # Never heard of again: what follows is up to the step's `recover`.
                self.gone.add((run_id, plan.name))
                return
            failed = self.trouble(plan, name, last=attempt == first + ATTEMPTS - 1)
            if failed is None:
                yield from self.say(StepCompleted(**name, ops=write_ops(plan, 0)))
                return
            yield from self.say(failed)
            yield rng.randrange(1, 800)

    def trouble(self, plan: StepPlan, name: dict[str, Any], *, last: bool) -> StepFailed | None:
        """What goes wrong with an attempt, if anything does."""
        del plan
        calm = self.world.network.calm
        if self.world.rng.random() >= self.world.odds.fail or calm or last:
            return None
        return StepFailed(**name, failure_type=FailureType.TRANSIENT, error_class="busy")

    def say(self, event: Any) -> Step:
        log = self.world.events[self.world.partition_of(event.run_id)]
        while True:
            ack = yield self.producer.send(log, event.run_id, event)
            if isinstance(ack, Entry):
                return
            self.producer.renew()
            yield 50
