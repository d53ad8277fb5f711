"""Clients: they start runs (also twice or with other content), pause, cancel, supply facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from tests.simulation.clock import Process, Step, first_of
from tests.simulation.log import Entry, Producer
from tests.simulation.plans import RunSpec, pack
from tests.simulation.poison import POISON

from dalsegno.schemas.control import DecisionMade, DecisionType
from dalsegno.schemas.events import FailureType as Failure
from dalsegno.schemas.events import (
    InformationSupplied,
    RiskFlagged,
    RunCancelled,
    RunPaused,
    RunResumed,
    StepCompleted,
    StepFailed,
    StepStarted,
)
from dalsegno.streams.core.record import Unreadable

if TYPE_CHECKING:
    from tests.simulation.world import World


class Client:
    """One client per run; its process may not die, its messages may be late, doubled, overtaken."""

    def __init__(self, world: World, spec: RunSpec) -> None:
        self.world = world
        self.spec = spec
        self.process = Process(world.scheduler, f"client-{spec.run_id}")
        plain = world.rng.random() < 0.3
        self.producer = Producer(world.network, self.process, idempotent=not plain)
        self.done = False
        self.settled = False
        self.process.spawn(
            self.live(), delay_ms=world.rng.randrange(0, world.setup.chaos_ms // 2 + 1)
        )

    def live(self) -> Step:
        rng = self.world.rng
        odds = self.world.odds
        if self.spec.early_note:
            yield from self.say(self.note("early"))
            yield rng.randrange(0, 3_000)
        if rng.random() < odds.client_trouble:
            # Before its run exists: it must wait for it, or end as a dead letter.
            yield from self.say(self.odd_event())
        yield from self.say(self.spec.started)
        self.spec.acknowledged = True
        if rng.random() < odds.client_trouble:
            yield rng.randrange(0, 2_000)
            again = self.spec.started
            if rng.random() < 0.5:
                again = msgspec.structs.replace(again, flow_version=2)
            yield from self.say(again)
        for _ in range(3):
            if self.world.network.calm or rng.random() > odds.client_trouble:
                break
            yield rng.randrange(0, 6_000)
            yield from self.say(self.odd_event())
        if rng.random() < odds.poison:
            yield from self.say(RiskFlagged(run_id=self.spec.run_id, flag_id="poison", flag=POISON))
        if rng.random() < odds.cancel:
            yield rng.randrange(0, 8_000)
            yield from self.say(
                RunCancelled(run_id=self.spec.run_id, request_id="c1", reason="changed")
            )
        elif rng.random() < odds.pause:
            yield from self.pause()
        self.done = True

    def pause(self) -> Step:
        rng = self.world.rng
        yield rng.randrange(0, 4_000)
        yield from self.say(RunPaused(run_id=self.spec.run_id, request_id="p1"))
        yield rng.randrange(100, 8_000)
        yield from self.say(RunResumed(run_id=self.spec.run_id, request_id="p2"))

    def settle(self) -> Step:
        """After the faults: supply what a run may still be asking for, let go what is paused."""
        yield from self.say(self.note("late"))
        yield from self.say(RunResumed(run_id=self.spec.run_id, request_id="p3"))
        self.settled = True

    def note(self, which: str) -> InformationSupplied:
        return InformationSupplied(
            run_id=self.spec.run_id,
            information_id=f"note-{which}",
            ops=pack([["set", ["note"], "a note"]]),
            origin="client",
        )

    def odd_event(self) -> Any:
        """Something that is late, repeated, for another epoch, or not for this version."""
        rng = self.world.rng
        run_id = self.spec.run_id
        step = rng.choice(self.spec.started.plan.steps).name
        epoch = rng.randrange(0, 4)
        number = rng.randrange(5)
        if number == 0:
            return RiskFlagged(run_id=run_id, flag_id=f"f{epoch}", flag="odd")
        if number == 1:
            # Epochs that were never dispatched: a report of theirs must change nothing.
            return StepCompleted(
                run_id=run_id,
                step=step,
                epoch=epoch + 40,
                ops=pack([["set", [f"{step}_out"], "bad"]]),
            )
        if number == 2:
            return StepFailed(
                run_id=run_id, step=step, epoch=epoch + 40, failure_type=Failure.PERMANENT
            )
        if number == 3:
            return StepStarted(run_id=run_id, step="nowhere", epoch=epoch, worker="ghost")
        return DecisionMade(
            run_id=run_id,
            decision_id=f"d{epoch}",
            escalation_id="none",
            decision=DecisionType.APPROVE,
            decided_by="nobody",
            reason="too early",
        )

    def say(self, event: Any) -> Step:
        """Until acknowledged; what is sent again is the same."""
        world = self.world
        log = world.events[world.partition_of(self.spec.run_id)]
        while True:
            ack = yield first_of(
                world.scheduler, self.producer.send(log, self.spec.run_id, event), 10_000
            )
            if isinstance(ack, Entry):
                return
            self.producer.renew()
            yield 100


def unreadable(reason: str = "bad_frame") -> Unreadable:
    return Unreadable(reason, "the simulation wrote bytes that are not an event")
