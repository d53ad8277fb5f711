"""One world of everything: partitions, actors of fault points, recovery, sagas and people over one
log, with all faults of engines, workers, clock and network, and those of dependencies.

The seams are what it is for: a person who decides late on a run that went back meanwhile, a lease
that lapses while an engine fails over, a release that races with a closing breaker.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from tests.simulation import dependencies
from tests.simulation.actors import Actor, ActorReference
from tests.simulation.body import write_ops
from tests.simulation.client import Client
from tests.simulation.clock import Step
from tests.simulation.combined_checks import CombinedChecker, CombinedReference
from tests.simulation.combined_story import CombinedStory
from tests.simulation.deciders import DECISION_KEYS, SECRET, People, Signed
from tests.simulation.dependencies import NAMES, Mode
from tests.simulation.engine import Engine
from tests.simulation.log import Changelog, Entry, LogPartition
from tests.simulation.moods import MOODS, QUEUED, CombinedOdds, draw_odds
from tests.simulation.operators import Operator, draw_dependencies
from tests.simulation.plans import RunSpec, pack
from tests.simulation.poison import POISON
from tests.simulation.saga_world import SagaBody, SagaWorld
from tests.simulation.service import ATTEMPTS, Services
from tests.simulation.suppliers import CHANNEL, QUEUE, Supplier
from tests.simulation.world import Setup

from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.events import (
    FailureType,
    InformationSupplied,
    RiskFlagged,
    StepCompleted,
    StepFailed,
)
from dalsegno.schemas.outputs import Escalation, StepState
from dalsegno.schemas.plan import OnFailure, Risk, StepPlan, StepRole
from dalsegno.streams.core.actions import Audit, ReportFault
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.runstate import Run

QUEUED_SHARE = 0.3
unpack = msgspec.msgpack.decode


class CombinedBody(SagaBody):
    """A step calls each service that it depends on before it acts."""

    def complete(self) -> Step:
        """A step that may supply the fact does so now and then."""
        ops = unpack(write_ops(self.plan, self.handoff.epoch))
        if "note" in self.plan.may_write and self.world.rng.random() < 0.5:
            ops.append(["set", ["note"], f"by {self.plan.name}"])
        yield from self.say(StepCompleted(**self.name(), ops=pack(ops), progress=2))

    def run(self) -> Step:
        for name in dict.fromkeys(self.plan.depends_on):
            yield self.world.network.delay()
            answered = yield from self.world.dependencies[name].serve(self.handoff)
            if answered.error:
                yield from self.say(
                    StepFailed(
                        **self.name(),
                        failure_type=FailureType.DEPENDENCY,
                        error_class=answered.error,
                        dependency=name,
                        retry_after_ms=answered.retry_after_ms,
                    )
                )
                return
        yield from super().run()


def with_supplier(steps: tuple[StepPlan, ...]) -> tuple[StepPlan, ...]:
    """The first step may supply the fact that others miss; it acts on nothing outside."""
    first, *others = steps
    supplier = msgspec.structs.replace(
        first, may_write=("note",), compensate="", risk=Risk.NONE, risk_reason="", pivot=False
    )
    return (supplier, *(step for step in others if step.name != first.compensate))


class CombinedEngine(Engine):
    """Beside each partition an actor of fault points."""

    actor_class = Actor

    def restore(self, number: int, parts: list[tuple[bytes, bytes]]) -> Partition:
        self.world.checker.references[number].seams.restored = True
        return super().restore(number, parts)

    def own(self, number: int, task: int) -> Step:
        self.process.spawn(self.actor_class(self, number, task).life())
        yield from super().own(number, task)


class CombinedClient(Client):
    """Now and then a field of its run moves from outside."""

    def live(self) -> Step:
        yield from super().live()
        self.done = False
        rng = self.world.rng
        if rng.random() < 2 * self.world.odds.poison:
            yield rng.randrange(500, 8_000)
            yield from self.say(RiskFlagged(run_id=self.spec.run_id, flag_id="late", flag=POISON))
        if rng.random() < self.world.odds.gated / 2:
            yield rng.randrange(100, 8_000)
            yield from self.say(RiskFlagged(run_id=self.spec.run_id, flag_id="odd", flag="odd"))
        while rng.random() < self.world.odds.inform and not self.world.network.calm:
            yield rng.randrange(100, 8_000)
            written = [name for step in self.spec.started.plan.steps for name in step.writes]
            field = rng.choice(["applicant", "note", "note", *written])
            number = self.world.next_number()
            yield from self.say(
                InformationSupplied(
                    run_id=self.spec.run_id,
                    information_id=f"moved-{number}",
                    ops=pack([["set", [field], f"moved {number}"]]),
                    origin="bank",
                )
            )
        self.done = True


class CombinedServices(Services):
    """What drives itself calls its services as well, and is not held back by anything."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.again: set[tuple[str, str, int]] = set()

    def on_transition(self, log: LogPartition, entry: Entry) -> None:
        super().on_transition(log, entry)
        if not isinstance(entry.event, Audit):
            return
        change = entry.event.transition
        for each in change.changes:
            plan = self.world.plan_step(change.run_id, each.step)
            asked = each.before in {StepState.ESCALATED, StepState.MISSING_INFO}
            place = (change.run_id, each.step, change.cause_offset)
            if plan.queue or not asked or each.after is not StepState.READY or place in self.again:
                continue
            # A person lets it try again: it begins by itself, with higher numbers.
            self.again.add(place)
            first = 1 + ATTEMPTS * (1 + len(self.again))
            self.process.spawn(self.serve(change.run_id, plan, first))

    def trouble(self, plan: StepPlan, name: dict[str, Any], *, last: bool) -> StepFailed | None:
        for service in plan.depends_on:
            ill = self.world.dependencies[service].mode() in {Mode.REFUSES, Mode.BUSY}
            if ill and not last:
                return StepFailed(
                    **name,
                    failure_type=FailureType.DEPENDENCY,
                    error_class="refused",
                    dependency=service,
                )
        return super().trouble(plan, name, last=last)


class CombinedWorld(SagaWorld):
    """Everything of one simulation of all parts. `mood`: one of `MOODS`, or drawn."""

    body_class = CombinedBody
    story_class = CombinedStory
    checker_class = CombinedChecker
    reference_class = CombinedReference
    engine_class = CombinedEngine
    client_class = CombinedClient
    services_class = CombinedServices

    def __init__(self, seed: int, *, large: bool = False, mood: str = "") -> None:
        self.mood = mood
        self.fault_logs: list[LogPartition] = []
        self.fault_changelogs: list[Changelog] = []
        self.actor_references: list[ActorReference] = []
        self.aside = Random(f"{seed} supplier")
        super().__init__(seed, large=large)
        self.supplier = Supplier(self, self.aside)
        self.dependencies = dependencies.make(self, self.rng)
        self.people = People(self)
        self.operator = Operator(self)

    def draw_setup(self, rng: Random, *, large: bool) -> Setup:
        setup = Setup.draw(rng, large=large)
        if large:
            return setup
        return msgspec.structs.replace(
            setup,
            workers=rng.choice((1, 2, 3)),
            slots=rng.choice((1, 2, 4)),
            runs=rng.choice((2, 4, 7)),
            chaos_ms=rng.choice((10_000, 20_000)),
        )

    def draw_odds(self, rng: Random) -> CombinedOdds:
        drawn = rng.choice(list(MOODS))
        queued = self.mood == QUEUED or (not self.mood and self.aside.random() < QUEUED_SHARE)
        mood = self.mood if self.mood in MOODS else drawn
        return draw_odds(rng, super().draw_odds(rng), mood, queued=queued)

    def draw_policy(self, rng: Random) -> Policy:
        asks = self.aside.random() < self.odds.queued
        return msgspec.structs.replace(
            super().draw_policy(rng),
            queues=("default", QUEUE),
            supplier_queue=QUEUE if asks else "",
            decision_keys=DECISION_KEYS,
            person_wait_ms=rng.choice((20_000, 60_000)),
            reminder_first_ms=rng.choice((0, 5_000, 20_000)),
            quota_lease_ms=rng.choice((2_500, 10_000)),
            fault_report_ms=rng.choice((25, 200)),
            recovery_width_max=rng.choice((0, 1, 3, 1_000)),
            run_recoveries_max=rng.choice((4, 1_000, 1_000)),
            freeze_stops_clocks=rng.random() < 0.5,
            supplier_reruns_max=rng.choice((0, 1, 2)),
            supplier_wait_ms=self.aside.choice((3_000, 10_000)) if asks else 10_000,
            dependencies=draw_dependencies(rng),
        )

    def draw_spec(self, rng: Random, number: int) -> RunSpec:
        spec = super().draw_spec(rng, number)
        plan = spec.started.plan
        steps = tuple(self.draw_seams(rng, step) for step in plan.steps)
        if rng.random() < self.odds.supplies:
            steps = with_supplier(steps)
            spec.effects[steps[0].name] = 0
        plan = msgspec.structs.replace(
            plan,
            steps=steps,
            secrets=("card",),
            gates=("odd",) if rng.random() < self.odds.gated else (),
            on_failure=OnFailure.COMPENSATE if rng.random() < self.odds.back else OnFailure.PERSON,
            stop_clocks_for_people=rng.random() < 0.3,
        )
        longest = sum(step.timeout_ms for step in steps if step.role is StepRole.FORWARD)
        short = rng.random() < 0.3
        started = msgspec.structs.replace(
            spec.started,
            plan=plan,
            context=pack({"applicant": spec.run_id, "card": SECRET}),
            ttl_ms=longest + rng.randrange(100, 6_000) if short else 7_200_000,
        )
        return RunSpec(spec.run_id, started, spec.effects)

    def draw_seams(self, rng: Random, step: StepPlan) -> StepPlan:
        """What a step depends on, what it risks, and whether it reads what is secret."""
        if step.role is StepRole.FORWARD and rng.random() < self.odds.observed:
            # A service runs it by itself.
            return msgspec.structs.replace(step, queue="", depends_on=self.draw_leaning(rng))
        risk = Risk.NONE
        if rng.random() < self.odds.risk:
            risk = rng.choice((Risk.MONEY, Risk.EXTERNAL))
        return msgspec.structs.replace(
            step,
            depends_on=self.draw_leaning(rng),
            reads=(*step.reads, "card") if rng.random() < 0.1 else step.reads,
            risk=risk,
            risk_reason="it is watched" if risk is not Risk.NONE else "",
        )

    def draw_leaning(self, rng: Random) -> tuple[str, ...]:
        """The services that a step depends on: the fewer they are, the more go down with them."""
        names = NAMES[: self.odds.leaning]
        return tuple(sorted(rng.sample(names, min(len(names), rng.choice((0, 1, 1, 2))))))

    def _make_logs(self) -> None:
        super()._make_logs()
        numbers = range(self.setup.partitions)
        self.outputs[CHANNEL] = [
            LogPartition(self.scheduler, CHANNEL, number, self.aside.randrange(-500, 500))
            for number in numbers
        ]
        self.fault_logs = [
            LogPartition(self.scheduler, "faults-topic", number, self.rng.randrange(-500, 500))
            for number in numbers
        ]
        self.fault_changelogs = [Changelog(number) for number in numbers]
        self.actor_references = [ActorReference(self, number) for number in numbers]
        self.all_logs += self.fault_logs

    def _listen(self) -> None:
        super()._listen()
        for reference, log in zip(self.actor_references, self.fault_logs, strict=True):
            log.listeners.append(self._on_fault)
            log.listeners.append(reference.on_append)
            self.fault_changelogs[log.number].listeners.append(reference.on_commit)
        for log in self.outputs["faults"]:
            log.listeners.append(self._on_report)

    def _on_fault(self, log: LogPartition, entry: Entry) -> None:
        self.trace("fault log", log.number, entry.offset, type(entry.event).__name__, entry.key)

    def _on_report(self, log: LogPartition, entry: Entry) -> None:
        """What a partition reports stands in the faults topic, under the key of its point."""
        assert isinstance(entry.event, ReportFault)
        report = entry.event.report
        self.fault_log_of(report.fault_point).append(
            report.fault_point, report, writer=f"partition {log.number}"
        )

    def fault_log_of(self, point: str) -> LogPartition:
        """Where the topic's key puts a fault point."""
        return self.fault_logs[sum(point.encode()) % self.setup.partitions]

    def actor_of(self, point: str) -> ActorReference:
        return self.actor_references[self.fault_log_of(point).number]

    def points_by_hand(self) -> list[str]:
        """Fault points that somebody holds open, or limits."""
        return [
            name
            for actor in self.actor_references
            for name, point in actor.fold.points.items()
            if point.held_open or point.limit
        ]

    def make_record(self, log: LogPartition, entry: Entry) -> Record:
        record = super().make_record(log, entry)
        if not isinstance(entry.event, Signed):
            return record
        keys = self.checker.references[log.number].partition.policy.decision_keys
        return msgspec.structs.replace(record, event=entry.event.read(keys))

    def is_asking(self, package: Escalation) -> bool:
        """Whether the question of a package is still open."""
        run_id, _, number = package.escalation_id.rpartition("#")
        partition = self.checker.references[self.partition_of(run_id)].partition
        run = partition._runs.get(run_id)
        if not isinstance(run, Run):
            return False
        people = run.head.people
        asks: list[Any] = [row.handled.ask for row in run.rows if row.handled is not None]
        if people is not None:
            asks += [people.gate, people.aside]
        return any(ask is not None and ask.number == int(number) for ask in asks)

    def _run(self) -> str:
        for log in self.fault_logs:
            policy = PolicySet(partition=log.number, number=1, policy=self.policy)
            log.append("", policy, writer="console")
        return super()._run()

    def grow_calm(self) -> None:
        super().grow_calm()
        self.people.process.spawn(self.people.settle())
        self.operator.process.spawn(self.operator.settle(), delay_ms=self.rng.randrange(1, 4_000))

    def _settled(self) -> bool:
        return self.operator.done and super()._settled() and self._points_rest()

    def _points_rest(self) -> bool:
        return not any(
            point.waiting or point.out or point.held_open
            for actor in self.actor_references
            for point in actor.fold.points.values()
        )
