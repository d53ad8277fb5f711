"""Worlds whose runs can be taken back: plans with compensations, a receiver that takes back, and
what must hold of both.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from tests.simulation.body import Body
from tests.simulation.clock import Step
from tests.simulation.invariants import Checker
from tests.simulation.plans import SHAPES, RunSpec, draw_step, pack
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.receiver import Call, Receiver
from tests.simulation.saga_story import SagaStory
from tests.simulation.world import Odds, World

from dalsegno.schemas.events import FailureType, RunStarted
from dalsegno.schemas.outputs import RunState
from dalsegno.schemas.plan import OnFailure, Plan, RetryPolicy, StepPlan, StepRole

_PATIENT = RetryPolicy(max_attempts=6, max_infra_attempts=12, initial_ms=200, max_ms=3_000)


class UndoingReceiver(Receiver):
    """It takes back by the key of the act, once; a key that was taken back stays closed."""

    def __init__(self) -> None:
        super().__init__()
        self.undone: dict[str, set[str]] = {}
        self.undo_calls: list[tuple[str, Call]] = []

    def act(self, call: Call) -> str | None:
        """None, too, for an act that comes after it was taken back."""
        if call.key in self.undone:
            self.refused += 1
            return None
        return super().act(call)

    def take_back(self, of: str, call: Call) -> str | None:
        """Takes back what was done under `of`, if anything was."""
        result = super().act(call)
        if result is not None:
            self.undone.setdefault(of, set()).add(call.key)
            self.undo_calls.append((of, call))
        return result


class SagaBody(Body):
    """A compensation takes back all that its handoff lists, each as an effect of its own."""

    def run(self) -> Step:
        if not self.handoff.undoes:
            yield from super().run()
            return
        rng = self.world.rng
        yield rng.randrange(1, self.world.odds.work_ms)
        for entry in self.handoff.undo:
            if not (yield from self.take_back(entry.key, entry.effect, entry.occurrence)):
                yield from self.fail(FailureType.TRANSIENT)
                return
        if rng.random() < self.world.odds.fail and not self.world.network.calm:
            yield from self.fail(rng.choice(self.world.odds.failure_types))
            return
        yield from self.complete()

    def take_back(self, of: str, effect: str, occurrence: int) -> Any:
        """As an effect, through the receiver's other door."""
        steps = self.effect(f"undo:{effect}", occurrence)
        return (yield from _through(steps, self.world.receiver, of))


def _through(steps: Any, receiver: Any, of: str) -> Any:
    """Runs an effect's steps; while each of them runs, what it does to the receiver takes back."""
    sent: Any = None
    while True:
        act = receiver.act
        receiver.act = lambda call: receiver.take_back(of, call)
        try:
            wanted = steps.send(sent)
        except StopIteration as end:
            return end.value
        finally:
            receiver.act = act
        sent = yield wanted


class SagaChecker(Checker):
    """What must hold of the receiver once the world has come to rest."""

    def check_effects(self) -> None:
        super().check_effects()
        receiver: UndoingReceiver = self.world.receiver  # type: ignore[assignment]
        for of, keys in receiver.undone.items():
            if len(keys) > 1:
                raise BrokenPromiseError(f"saga: {of} was taken back under {len(keys)} keys")
        for reference in self.references:
            for story in reference.stories.values():
                if isinstance(story, SagaStory) and story.spec is not None:
                    self.check_run(story, receiver)

    def check_run(self, story: SagaStory, receiver: UndoingReceiver) -> None:
        """Nothing is left of a compensated run; nothing of another one was taken back."""
        for (step, effect, occurrence), (key, _) in story.intended.items():
            undone, applied = key in receiver.undone, key in receiver.applied
            name = f"{story.run_id}/{step}/{effect}/{occurrence}"
            if undone and story.turned_at is None:
                raise BrokenPromiseError(f"saga: {name} was taken back, its run never went back")
            back = story.compensation_of(step)
            by_hand = step in story.by_hand
            stands = back and applied and not undone and not by_hand and story.is_known
            if story.state is RunState.COMPENSATED and stands:
                raise BrokenPromiseError(f"saga: compensated, and {name} stands")
        known = {key for key, _ in story.intended.values()}
        for of, call in receiver.undo_calls:
            if call.run_id == story.run_id and of not in known:
                raise BrokenPromiseError(f"saga: {of} was taken back and was never intended")


class SagaWorld(World):
    """Steps fail for good more often than elsewhere, and clients change their minds."""

    receiver_class = UndoingReceiver
    body_class = SagaBody
    story_class = SagaStory
    checker_class = SagaChecker

    def draw_odds(self, rng: Random) -> Odds:
        odds = Odds.draw(rng)
        kinds = (FailureType.TRANSIENT, FailureType.DEPENDENCY, FailureType.PERMANENT)
        return msgspec.structs.replace(
            odds,
            fail=rng.choice((0.15, 0.35)),
            cancel=rng.choice((0.1, 0.4)),
            failure_types=kinds,
            poison=0.0,
        )

    def draw_spec(self, rng: Random, number: int) -> RunSpec:
        run_id = f"run-{number}"
        shape = SHAPES[rng.choice(list(SHAPES))]
        forward = [
            msgspec.structs.replace(
                draw_step(rng, name, needs, note=False, observed=False),
                compensate=f"undo {name}" if rng.random() < 0.85 else "",
            )
            for name, needs in shape.items()
        ]
        if rng.random() < 0.2:
            forward[-1] = msgspec.structs.replace(forward[-1], pivot=True)
        back = [
            StepPlan(
                name=step.compensate,
                queue="default",
                role=StepRole.COMPENSATION,
                timeout_ms=rng.choice((3_000, 6_000)),
                retry=_PATIENT,
            )
            for step in forward
            if step.compensate
        ]
        longest = sum(step.timeout_ms for step in forward)
        started = RunStarted(
            run_id=run_id,
            source="client",
            reply_to=f"client/{run_id}",
            flow=f"saga-{len(forward)}",
            flow_version=1,
            plan=Plan(steps=(*forward, *back), on_failure=OnFailure.COMPENSATE),
            context=pack({"applicant": run_id}),
            ttl_ms=longest + rng.randrange(1_000, 20_000) if rng.random() < 0.2 else 7_200_000,
        )
        effects = {step.name: rng.choice((0, 1, 1, 2)) for step in (*forward, *back)}
        return RunSpec(run_id, started, effects)
