"""An operator: freezes and releases recovery, looks first, steers fault points, sets policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from tests.simulation.clock import Process, Step, first_of
from tests.simulation.deciders import DECISION_KEYS
from tests.simulation.dependencies import NAMES
from tests.simulation.log import Entry, LogPartition, Producer

from dalsegno.schemas.control import (
    Dependency,
    HealthCheck,
    Policy,
    PolicySet,
    RecoveryFrozen,
    RecoveryReleased,
)
from dalsegno.schemas.faults import FaultPointSet, HandAction

if TYPE_CHECKING:
    from tests.simulation.world import World

ATTEMPTS_MAX = 200


class Operator:
    """One person at a console, and whoever rolls out policies."""

    def __init__(self, world: World) -> None:
        self.world: Any = world
        self.rng = world.rng
        self.process = Process(world.scheduler, "operator at the console")
        self.producer = Producer(world.network, self.process, idempotent=False)
        self.frozen: list[tuple[str, str]] = []
        self.policy: Policy = world.policy
        self.policies = 1
        self.done = False
        self.busy = False
        flows = sorted({spec.started.flow for spec in world.specs.values()})
        self.scopes = [("", ""), *((flow, "") for flow in flows), *(("", name) for name in NAMES)]
        if self.rng.random() < world.odds.operator:
            self.process.spawn(self.live())

    def live(self) -> Step:
        while True:
            yield self.rng.randrange(200, 3_000)
            if self.world.network.calm:
                return
            self.busy = True
            yield from self.rng.choice(ACTIONS)(self)
            self.busy = False

    def settle(self) -> Step:
        """In the calm: everything is released, closed, and without a limit."""
        while self.busy:
            yield 100
        while self.frozen:
            yield from self.release()
        for name in self.world.points_by_hand():
            yield from self.hand(name, HandAction.LIMIT, 0)
            yield from self.hand(name, HandAction.CLOSE, 0)
        self.done = True

    def freeze(self) -> Step:
        scope = self.rng.choice(self.scopes)
        flow, point = scope
        self.world.trace("freeze", flow, point)
        if scope not in self.frozen:
            self.frozen.append(scope)
        number = self.world.next_number()
        for log in self.world.events:
            event = RecoveryFrozen(
                partition=log.number, number=number, flow=flow, fault_point=point, source="operator"
            )
            yield from self.say(log, event)

    def release(self) -> Step:
        if not self.frozen:
            return
        flow, point = self.frozen.pop(self.rng.randrange(len(self.frozen)))
        rate = self.rng.choice((0, 0, 1, 3))
        self.world.trace("release", flow, point, rate)
        number = self.world.next_number()
        for log in self.world.events:
            event = RecoveryReleased(
                partition=log.number, number=number, flow=flow, fault_point=point, rate_per_s=rate
            )
            yield from self.say(log, event)

    def preview(self) -> Step:
        """Looks at what an owner has; a look changes nothing, which its next checkpoint shows."""
        for engine in self.world.engines:
            for session in engine.sessions.values():
                if session.alive:
                    session.partition.previews.look(limit=5, width=4)
                    for run_id in list(self.world.specs):
                        session.partition.previews.plan(run_id, 4)
        yield 1

    def steer(self) -> Step:
        name = self.rng.choice(NAMES)
        action = self.rng.choice(list(HandAction))
        yield from self.hand(name, action, self.rng.choice((0, 1, 3)))

    def hand(self, name: str, action: HandAction, limit: int) -> Step:
        self.world.trace("hand", name, action, limit)
        number = self.world.next_number()
        event = FaultPointSet(
            fault_point=name, request_id=f"hand-{number}", action=action, decided_by="ops",
            reason="looks", limit=limit, number=number,
        )  # fmt: skip
        yield from self.say(self.world.fault_log_of(name), event)

    def roll_out(self) -> Step:
        """Another policy, partition after partition."""
        rng = self.rng
        self.policies += 1
        self.policy = msgspec.structs.replace(
            self.policy,
            quota_lease_ms=rng.choice((2_500, 10_000)),
            recovery_width_max=rng.choice((0, 2, 1_000)),
            run_recoveries_max=rng.choice((4, 1_000)),
            freeze_stops_clocks=rng.random() < 0.5,
            reminder_first_ms=rng.choice((0, 5_000, 20_000)),
            start_limit_ms=rng.choice((4_000, 6_000)),
            decision_keys=DECISION_KEYS[: rng.choice((1, 2, 2))],
            dependencies=draw_dependencies(rng),
        )
        self.world.trace("policy", self.policies)
        for log in (*self.world.events, *self.world.fault_logs):
            event = PolicySet(partition=log.number, number=self.policies, policy=self.policy)
            yield from self.say(log, event)

    def say(self, log: LogPartition, event: Any) -> Step:
        """Until it is acknowledged."""
        for _ in range(ATTEMPTS_MAX):
            ack = yield first_of(self.world.scheduler, self.producer.send(log, "", event), 5_000)
            if isinstance(ack, Entry):
                return
            yield 100


def draw_dependencies(rng: Any) -> tuple[Dependency, ...]:
    """What a policy says of dependencies: some are checked, some are told apart by error class."""
    checks = (HealthCheck.NONE, HealthCheck.NONE, HealthCheck.HTTP)
    return tuple(
        Dependency(
            name=name,
            check=rng.choice(checks),
            target="http://it/health",
            by_class=rng.random() < 0.15,
            window_max=rng.choice((2, 10_000)),
        )
        for name in NAMES
        if rng.random() < 0.6
    )


ACTIONS: tuple[Callable[[Operator], Step], ...] = (
    Operator.freeze,
    Operator.freeze,
    Operator.release,
    Operator.release,
    Operator.release,
    Operator.preview,
    Operator.steer,
    Operator.steer,
    Operator.roll_out,
)
