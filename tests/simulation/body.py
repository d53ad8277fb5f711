"""The body of a step: effects with their journal, progress, and an end of some type."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec
from tests.simulation.clock import Step
from tests.simulation.receiver import Call

from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    FailureType,
    StepCompleted,
    StepFailed,
    StepProgressed,
)
from dalsegno.schemas.outputs import AnswerType, EffectStatus, JournalEntry
from dalsegno.schemas.plan import StepPlan, UnknownPolicy
from dalsegno.streams.core.effects import effect_key

if TYPE_CHECKING:
    from tests.simulation.worker import Attempt, Worker

pack = msgspec.msgpack.encode


def written(step: str, epoch: int) -> str:
    """What a step writes: the attempt that stands can be read off every value."""
    return f"{step}#{epoch}"


def write_ops(plan: StepPlan, epoch: int) -> bytes:
    return pack([["set", [field], written(plan.name, epoch)] for field in plan.writes])


class Body:
    """One run of a step's body by a worker."""

    def __init__(self, worker: Worker, attempt: Attempt) -> None:
        self.worker = worker
        self.world = worker.world
        self.attempt = attempt
        self.handoff = attempt.handoff
        self.plan = self.world.plan_step(self.handoff.run_id, self.handoff.step)

    def name(self) -> dict[str, Any]:
        """The fields that every report of the attempt carries."""
        return {
            "run_id": self.handoff.run_id,
            "step": self.handoff.step,
            "epoch": self.handoff.epoch,
            "source": self.worker.name,
            "reply_to": self.worker.address,
            "sent_at_ms": self.worker.own_clock_ms(),
        }

    def run(self) -> Step:
        rng = self.world.rng
        yield rng.randrange(1, self.world.odds.work_ms)
        for number in range(self.world.effects_of(self.handoff.run_id, self.handoff.step)):
            if not (yield from self.effect("pay", number)):
                yield from self.fail(FailureType.TRANSIENT)
                return
        if rng.random() < 0.3:
            self.attempt.progress += 1
            save = f"{self.handoff.step}@{self.handoff.epoch}".encode()
            yield from self.say(StepProgressed(**self.name(), progress=1, save=save))
        if rng.random() < self.world.odds.hang and not self.world.network.calm:
            # Busy for ever: only the step's timeout or a verdict ends it.
            for progress in range(2, 40):
                yield 1_500
                yield from self.say(StepProgressed(**self.name(), progress=progress))
        if rng.random() < self.world.odds.fail and not self.world.network.calm:
            yield from self.fail(rng.choice(self.world.odds.failure_types))
            return
        yield from self.complete()

    def complete(self) -> Step:
        event = StepCompleted(
            **self.name(), ops=write_ops(self.plan, self.handoff.epoch), progress=2
        )
        yield from self.say(event)

    def fail(self, kind: FailureType) -> Step:
        rng = self.world.rng
        missing = kind is FailureType.MISSING_INFO
        yield from self.say(
            StepFailed(
                **self.name(),
                failure_type=kind,
                error_class="simulated",
                missing_fields=("note",) if missing else (),
                retry_after_ms=rng.choice((None, 700, 3_000))
                if kind is FailureType.TRANSIENT
                else None,
                dependency="bureau" if kind is FailureType.DEPENDENCY else "",
            )
        )

    def say(self, event: Any) -> Step:
        yield from self.worker.report(self.attempt, event)

    def effect(self, effect: str, occurrence: int) -> Generator[Any, Any, bool]:
        """Journal, act, journal. False: it could not be done now."""
        known = self.journal(effect, occurrence)
        if known is not None and known.status is EffectStatus.CONFIRMED:
            return True
        key = self.key_of(effect, occurrence)
        waits = self.plan.unknown is not UnknownPolicy.RETRY
        asked = len(self.attempt.answers)
        intended = EffectIntended(**self.name(), effect=effect, occurrence=occurrence, key=key)
        yield from self.say(intended)
        if waits and not (yield from self.accepted(intended, asked)):
            return False
        if not self.worker.lease_holds():
            return False
        if known is not None and self.plan.unknown is UnknownPolicy.CHECK:
            yield self.world.network.delay()
            result = self.world.receiver.look_up(key)
            if result is not None:
                yield from self.confirm(effect, occurrence, result)
                return True
        yield self.world.network.delay()
        result = self.world.receiver.act(
            Call(
                run_id=self.handoff.run_id,
                step=self.handoff.step,
                effect=effect,
                occurrence=occurrence,
                key=key,
                epoch=self.handoff.epoch,
                source_offset=self.attempt.sequence.offset,
                at_ms=self.world.scheduler.now_ms,
                result=f"{effect}-{occurrence}-by-{self.handoff.epoch}",
            )
        )
        self.world.trace("act", key, self.handoff.epoch, result)
        yield self.world.network.delay()
        if result is None or (self.world.rng.random() < 0.05 and not self.world.network.calm):
            return False
        yield from self.confirm(effect, occurrence, result)
        return True

    def key_of(self, effect: str, occurrence: int) -> str:
        return effect_key(self.handoff.recovery_key, effect, occurrence)

    def confirm(self, effect: str, occurrence: int, result: str) -> Step:
        event = EffectConfirmed(
            **self.name(), effect=effect, occurrence=occurrence, result=pack(result)
        )
        yield from self.say(event)

    def journal(self, effect: str, occurrence: int) -> JournalEntry | None:
        for entry in self.handoff.effects:
            if (entry.effect, entry.occurrence) == (effect, occurrence):
                return entry
        return None

    def accepted(self, intended: EffectIntended, asked: int) -> Generator[Any, Any, bool]:
        """Wait for the engine's word; ask again now and then, with the same content."""
        for _ in range(20):
            for _ in range(10):
                if any(
                    answer.answer is AnswerType.ACCEPTED for answer in self.attempt.answers[asked:]
                ):
                    return True
                yield 100
            yield from self.say(intended)
        return False
