"""The policy's supplier queue: who reads it and answers, and what must hold of what it is asked."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from tests.simulation.clock import Process, Step, first_of
from tests.simulation.log import Entry, LogPartition, Producer
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.story import FINAL

from dalsegno.schemas.events import InformationSupplied
from dalsegno.schemas.outputs import Handoff, RunState, StepState
from dalsegno.schemas.plan import StepRole
from dalsegno.streams.core.actions import Action, Dispatch

if TYPE_CHECKING:
    from tests.simulation.combined_story import CombinedStory
    from tests.simulation.combined_world import CombinedWorld

QUEUE = "facts"
CHANNEL = f"queue.{QUEUE}"
SILENT, REPEATS = 0.3, 0.2
pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode


def is_question(action: Action) -> bool:
    """Whether it is a question to the supplier, and nothing that a worker starts."""
    return isinstance(action, Dispatch) and action.queue == QUEUE


class Supplier:
    """Reads the queue as a consumer without the SDK does: what comes twice may be answered twice.

    Draws by itself, so that worlds without the queue stay as they are.
    """

    def __init__(self, world: CombinedWorld, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.process = Process(world.scheduler, "supplier")
        self.producer = Producer(world.network, self.process, idempotent=False)
        for log in world.outputs[CHANNEL]:
            log.listeners.append(self._on_question)

    def _on_question(self, log: LogPartition, entry: Entry) -> None:
        assert isinstance(entry.event, Dispatch)
        if self.rng.random() < SILENT:
            return
        late = self.rng.choice((10, 500, 3_000, 14_000))
        delay_ms = self.rng.randrange(1, late + 1)
        self.process.spawn(self._answer(entry.event.handoff), delay_ms=delay_ms)

    def _answer(self, asked: Handoff) -> Step:
        again = self.rng.random() < REPEATS
        for _ in range(1 + again):
            # The answer to one question is one answer, however often it is sent.
            name = f"{asked.step}#{asked.epoch}"
            ops = [["set", [field], f"{field} for {name}"] for field in asked.writes]
            yield from self._say(
                InformationSupplied(
                    run_id=asked.run_id, information_id=name, ops=pack(ops), origin=QUEUE
                )
            )
            yield self.rng.randrange(1, 2_000)

    def _say(self, event: InformationSupplied) -> Step:
        world = self.world
        log = world.events[world.partition_of(event.run_id)]
        while True:
            sent = self.producer.send(log, event.run_id, event)
            ack: Any = yield first_of(world.scheduler, sent, 5_000)
            if isinstance(ack, Entry):
                return
            self.producer.renew()
            yield 100


class QuestionBook:
    """Questions of one partition that are open, and when their time is over.

    `silent`: for how many a person was asked instead.
    """

    def __init__(self) -> None:
        self.silent = 0
        self.due_ms: dict[tuple[str, str], int] = {}

    def asked(self, story: CombinedStory, asked: Handoff, log_ms: int) -> None:
        """A question has gone out, after the transition of its unit."""
        spec = story.spec
        assert spec is not None, "every run of these worlds has a spec"
        where = f"{asked.run_id}/{asked.step}"
        step = spec.step(asked.step)
        if story.steps.get(asked.step) is not StepState.MISSING_INFO:
            raise BrokenPromiseError(f"facts: {where} is asked about and misses nothing")
        if story.turned_at is not None or step.role is not StepRole.FORWARD:
            raise BrokenPromiseError(f"facts: {where} is asked about while the run goes back")
        if not asked.writes or asked.start_by_ms > log_ms:
            raise BrokenPromiseError(f"facts: {where} asks for nothing, or could be started")
        given = unpack(asked.inputs)
        for field, value in given.items():
            if story.is_known and (field not in step.reads or value != story.expected(field)):
                raise BrokenPromiseError(f"P5: {where} is asked about with {field} as {value}")
        self.due_ms[asked.run_id, asked.step] = log_ms + asked.timeout_ms

    def check(self, stories: dict[str, CombinedStory], log_ms: int) -> None:
        """P6: of what nobody supplied in time a person has been asked."""
        for (run_id, step), due_ms in list(self.due_ms.items()):
            story = stories[run_id]
            asks = _asks(story, step)
            waits = story.steps.get(step) is StepState.MISSING_INFO and story.state not in FINAL
            if asks or not waits:
                self.silent += asks
                del self.due_ms[run_id, step]
            elif story.state is not RunState.QUARANTINED and log_ms >= due_ms:
                raise BrokenPromiseError(f"P6: {run_id}/{step}: no supplier, and nobody is asked")


def _asks(story: CombinedStory, step: str) -> bool:
    """Whether a person has an open question about the step."""
    return any(
        package.step == step and package.escalation_id not in story.decided
        for package in story.packages.values()
    )
