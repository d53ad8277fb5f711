"""The whole product in one thread under virtual time, from one seed.

`World(seed).run()` draws its size, its runs and its faults from the seed, lets them loose, heals
everything, waits until it has come to rest and checks the promises. It raises
`BrokenPromiseError`, or returns the digest of its trace, which is the same on every machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from tests.simulation.body import Body
from tests.simulation.client import Client
from tests.simulation.clock import Scheduler
from tests.simulation.engine import Engine
from tests.simulation.faults import Faults
from tests.simulation.groups import Group, QueueGroup
from tests.simulation.invariants import Checker
from tests.simulation.log import Changelog, Entry, LogPartition
from tests.simulation.network import Network
from tests.simulation.plans import RunSpec, draw_run
from tests.simulation.poison import poisoned
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.receiver import Receiver
from tests.simulation.reference import Reference
from tests.simulation.service import Services
from tests.simulation.story import Story
from tests.simulation.upgrade import NEW_CODE, OLD_CODE, Upgrade, code_for
from tests.simulation.worker import Worker

from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.events import FailureType
from dalsegno.schemas.outputs import Answer
from dalsegno.schemas.plan import StepPlan
from dalsegno.streams.core.actions import (
    Action,
    Audit,
    Dispatch,
    Escalate,
    PutAside,
    Reply,
    ReportFault,
)
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.sequence import Sequence

if TYPE_CHECKING:
    from tests.simulation.tiers import Disks

START_MS = 1_700_000_000_000
SETTLE_MAX_MS = 900_000
SESSION_MS = 6_000
TAIL = 60
CHANNELS = ("queue.default", "transitions", "escalations", "dead-letters", "control", "faults")
UNORDERED = ("control", "faults")


class Setup(msgspec.Struct, frozen=True):
    """Size and severity of a world."""

    partitions: int
    engines: int
    workers: int
    slots: int
    runs: int
    faults: int
    chaos_ms: int
    trouble_percent: float
    upgrade: bool

    @property
    def peaceful(self) -> bool:
        """Nothing dies, freezes or is lost in this world."""
        return not self.faults and not self.trouble_percent and not self.upgrade

    @classmethod
    def draw(cls, rng: Random, *, large: bool) -> Setup:
        if large:
            trouble = rng.choice((1.0, 4.0))
            return cls(3, 3, 4, 3, 14, rng.randrange(10, 40), 60_000, trouble, rng.random() < 0.5)
        return cls(
            partitions=rng.choice((1, 1, 2)),
            engines=rng.choice((1, 2, 2)),
            workers=rng.choice((1, 2, 2)),
            slots=rng.choice((1, 2, 4)),
            runs=rng.choice((1, 2, 3)),
            faults=rng.choice((0, 4, 8, 14)),
            chaos_ms=rng.choice((8_000, 15_000, 25_000)),
            trouble_percent=rng.choice((0.0, 1.0, 4.0, 10.0)),
            upgrade=rng.random() < 0.15,
        )


class Odds(msgspec.Struct, frozen=True):
    """How often workers and clients misbehave in this world.

    `deaf`: answers of the engine that do not reach their worker. `skips`: engines look up what is
    already out before they send it again; those that do not are right too, and repeat more.
    """

    fail: float
    hang: float
    release: float
    client_trouble: float
    cancel: float
    pause: float
    deaf: float
    skips: bool
    poison: float
    work_ms: int
    failure_types: tuple[FailureType, ...]

    @classmethod
    def draw(cls, rng: Random) -> Odds:
        rough = rng.random() < 0.7
        retried = (FailureType.TRANSIENT, FailureType.TRANSIENT, FailureType.DEPENDENCY)
        return cls(
            fail=rng.choice((0.05, 0.3, 0.5)) if rough else 0.0,
            hang=0.08 if rough else 0.0,
            release=0.1 if rough else 0.0,
            client_trouble=0.35 if rough else 0.0,
            cancel=0.2 if rough else 0.0,
            pause=0.25 if rough else 0.0,
            deaf=0.3 if rough else 0.0,
            skips=rng.random() < 0.6,
            poison=0.05 if rough else 0.0,
            work_ms=rng.choice((50, 600, 4_000)),
            failure_types=tuple(FailureType) if rng.random() < 0.4 else retried,
        )


POLICY = Policy(
    start_limit_ms=6_000,
    start_margin_ms=1_000,
    verdict_age_ms=20_000,
    redispatch_initial_ms=300,
    redispatch_max_ms=4_000,
    early_events_max=3,
    early_wait_ms=15_000,
    stub_keep_ms=3_600_000,
)


class World:
    """Everything of one simulation; other modules reach each other only through it."""

    # What a world of another kind has in their places.
    receiver_class = Receiver
    body_class = Body
    story_class = Story
    checker_class = Checker
    reference_class = Reference
    engine_class = Engine
    client_class = Client
    services_class = Services
    disks: Disks | None = None

    def __init__(self, seed: int, *, large: bool = False) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.setup = setup = self.draw_setup(rng, large=large)
        self.odds = self.draw_odds(rng)
        self.policy = self.draw_policy(rng)
        self.scheduler = Scheduler(rng, START_MS)
        self.network = Network(self.scheduler, setup.trouble_percent)
        self.calm_since_ms: int | None = None
        self.tail: deque[tuple[Any, ...]] = deque(maxlen=TAIL)
        self._digest = blake2b(digest_size=16)
        self._number = 0
        self.acknowledged: dict[int, int] = {}
        self.clock_skew: dict[str, int] = {}
        self.addresses: dict[str, Callable[[Answer], None]] = {}
        self.records: list[list[Record]] = [[] for _ in range(setup.partitions)]
        self.specs: dict[str, RunSpec] = {}
        for number in range(setup.runs):
            spec = self.draw_spec(rng, number)
            self.specs[spec.run_id] = spec
        self.receiver = self.receiver_class()
        self._make_logs()
        self.engine_group = Group(self.scheduler, setup.partitions, SESSION_MS)
        self.queue_group = QueueGroup(self.scheduler, setup.partitions, SESSION_MS)
        self.code = {f"engine-{number}": OLD_CODE for number in range(setup.engines)}
        self.checker = self.checker_class(self)
        self._listen()
        self.engines = [self.start_engine(name) for name in self.code]
        self.workers = [self.start_worker(f"worker-{number}") for number in range(setup.workers)]
        self.clients = [self.client_class(self, spec) for spec in self.specs.values()]
        self.services = self.services_class(self)
        self.upgrade = Upgrade(self) if setup.upgrade else None
        self.faults = Faults(self)

    def draw_setup(self, rng: Random, *, large: bool) -> Setup:
        """Size and severity of this world."""
        return Setup.draw(rng, large=large)

    def draw_policy(self, rng: Random) -> Policy:
        """The first policy of this world."""
        return POLICY

    def draw_odds(self, rng: Random) -> Odds:
        """How often what goes wrong in this world."""
        return Odds.draw(rng)

    def draw_spec(self, rng: Random, number: int) -> RunSpec:
        """One run of this world."""
        return draw_run(rng, number, trouble=self.odds.client_trouble > 0)

    def _make_logs(self) -> None:
        rng, partitions = self.rng, range(self.setup.partitions)

        def logs(topic: str) -> list[LogPartition]:
            return [
                LogPartition(self.scheduler, topic, number, rng.randrange(-500, 500))
                for number in partitions
            ]

        self.events = logs("events")
        self.heartbeats = logs("heartbeats")
        self.outputs = {channel: logs(channel) for channel in CHANNELS}
        self.queues = self.outputs["queue.default"]
        self.changelogs = [Changelog(number) for number in partitions]
        self.all_logs = [*self.events, *self.heartbeats, *self.queues, *self.outputs["transitions"]]

    def _listen(self) -> None:
        for log in self.events:
            log.listeners.append(self._on_event)
        for logs in self.outputs.values():
            for log in logs:
                log.listeners.append(self._on_output)
        for changelog in self.changelogs:
            changelog.listeners.append(self.checker.on_commit)

    def _on_event(self, log: LogPartition, entry: Entry) -> None:
        event = entry.event
        self.trace("event", log.number, entry.offset, type(event).__name__, entry.key, entry.writer)
        self.records[log.number].append(self.make_record(log, entry))
        self.checker.references[log.number].on_append(entry)

    def _on_output(self, log: LogPartition, entry: Entry) -> None:
        self.trace("output", log.topic, log.number, *entry.sequence, entry.writer)
        self.checker.on_output(log, entry)
        if isinstance(entry.event, Reply):
            answer = entry.event.answer
            address = self.addresses.get(answer.reply_to)
            if address is not None and self.rng.random() >= self.odds.deaf:
                self.scheduler.after(self.network.delay(), lambda: address(answer))

    def make_record(self, log: LogPartition, entry: Entry) -> Record:
        """What the intake makes of an entry of the events."""
        return Record(entry.offset, entry.at_ms, entry.key.encode(), entry.value, entry.event)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def record(self, number: int, entry: Entry) -> Record:
        return self.records[number][entry.offset]

    def new_partition(self, number: int, known: tuple[int, ...] = NEW_CODE) -> Partition:
        """An empty partition, by the newest code unless `known` says otherwise."""
        return code_for(known)(number, rules_known=known)

    def partition_of(self, run_id: str) -> int:
        return int(run_id.rpartition("-")[2]) % self.setup.partitions

    def plan_step(self, run_id: str, step: str) -> StepPlan:
        return self.specs[run_id].step(step)

    def effects_of(self, run_id: str, step: str) -> int:
        return self.specs[run_id].effects[step]

    def output_log(self, action: Action, number: int) -> LogPartition:
        return self.outputs[action.channel][number]

    def output_key(self, action: Action) -> str:
        if isinstance(action, Dispatch):
            return action.handoff.run_id
        if isinstance(action, Audit):
            return action.transition.run_id
        if isinstance(action, Escalate):
            return action.escalation.run_id
        if isinstance(action, Reply):
            return action.answer.reply_to
        assert isinstance(action, ReportFault | PutAside)
        return ""

    def tails(self, number: int) -> dict[str, Sequence]:
        """The sequence of the last record of each ordered log: all before it is there too."""
        if not self.odds.skips:
            return {}
        return {
            channel: logs[number].entries[-1].sequence
            for channel, logs in self.outputs.items()
            if channel not in UNORDERED and logs[number].entries
        }

    def trace(self, *what: Any) -> None:
        line = (self.scheduler.now_ms - START_MS, *what)
        self.tail.append(line)
        self._digest.update(repr(line).encode())

    def start_engine(self, name: str) -> Engine:
        engine = self.engine_class(self, name)
        engine.process.on_death = lambda: self._come_back(engine, self.start_engine, self.engines)
        return engine

    def start_worker(self, name: str) -> Worker:
        worker = Worker(self, name, self.setup.slots)
        worker.process.on_death = lambda: self._come_back(worker, self.start_worker, self.workers)
        return worker

    def _come_back(self, dead: Any, start: Callable[[str], Any], owners: list[Any]) -> None:
        self.trace("died", dead.process.name)
        away = self.rng.choice((100, 1_000, 9_000))

        def restart() -> None:
            self.trace("restarted", dead.process.name)
            owners.remove(dead)
            owners.append(start(dead.process.name))

        self.scheduler.after(away, restart)

    def run(self) -> str:
        """Chaos, calm, rest. Returns the digest of the trace; raises `BrokenPromiseError`."""
        with poisoned():
            return self._run()

    def _run(self) -> str:
        for log in self.events:
            policy = PolicySet(partition=log.number, number=1, policy=self.policy)
            log.append("", policy, writer="console")
        self.scheduler.after(0, self._expire_sessions)
        self.faults.plan()
        self.scheduler.run(START_MS + self.setup.chaos_ms)
        self.grow_calm()
        if not self.scheduler.run(self.scheduler.now_ms + SETTLE_MAX_MS, self._settled):
            self.checker.at_rest()
            raise BrokenPromiseError("P6: the world does not come to rest")
        # Let checkpoints and last outputs come out, and see that nothing else moves.
        self.scheduler.run(self.scheduler.now_ms + 10_000)
        self.checker.at_rest()
        return self.digest()

    def grow_calm(self) -> None:
        self.network.calm = True
        self.calm_since_ms = self.scheduler.now_ms
        self.faults.heal()
        self.trace("calm")
        for client in self.clients:
            client.process.spawn(client.settle(), delay_ms=self.rng.randrange(1, 3_000))

    def digest(self) -> str:
        return self._digest.hexdigest()

    def _settled(self) -> bool:
        if self.upgrade is not None and not self.upgrade.done:
            return False
        return not self.checker.unsettled() and all(
            client.done and client.settled for client in self.clients
        )

    def _expire_sessions(self) -> None:
        self.engine_group.expire()
        self.queue_group.expire()
        self.scheduler.after(1_000, self._expire_sessions)
