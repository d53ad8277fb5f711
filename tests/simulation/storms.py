"""Fault points in small worlds: real folds of partitions and of actors, logs that delay and repeat,
owners that crash, workers that lose what they took, dependencies that go and come.

One seed is one schedule. Promises are checked after every record and at the end.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Self

import msgspec
from tests.simulation.actor_promises import ActorPromises, order_of
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.storm_shards import T0, Schedule, Shard

from dalsegno.schemas.control import (
    ClockTick,
    Policy,
    PolicySet,
)
from dalsegno.schemas.events import FailureType, RunStarted, StepCompleted, StepFailed, StepStarted
from dalsegno.schemas.outputs import FaultReport, Handoff, StepState
from dalsegno.schemas.plan import Plan, RetryPolicy, StepPlan
from dalsegno.streams.core.actions import Dispatch, Output, ReportFault
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.core.faultpoint.point import Phase
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

DEPENDENCIES = ("mail", "pay", "scan")
SPAN_MS = 40
PATIENCE_MS = 400_000
# Arrivals in the half second after a breaker has closed: a window of one that doubles each round.
FIRST_MS, FIRST_MAX = 300, 40


class StormWorld:
    """Everything: shards, one actor, workers, dependencies."""

    def __init__(self, seed: int, *, faulty: bool = True) -> None:
        self.time = Schedule(seed)
        draw = self.time.random
        self.shards = [Shard(self, number) for number in range(draw.randint(1, 3))]
        self.judged = [0] * len(self.shards)
        self.faults: list[Record] = []
        self.actors = FaultPoints(0, len(self.shards))
        self.actors_saved: dict[bytes, bytes] = {}
        self.actors_judged = 0
        self.reported: dict[tuple[int, int, int], FaultReport] = {}
        self.depends_on: dict[tuple[str, str], tuple[str, ...]] = {}
        self.taken: set[tuple[str, str, int]] = set()
        self.arrivals: dict[str, list[int]] = defaultdict(list)
        self.good: dict[str, list[int]] = defaultdict(list)
        self.down: dict[str, tuple[int, int]] = {}
        self.runs: list[tuple[int, str]] = []
        self.orders = 0
        self.promises = ActorPromises(self._closes)
        self.faulty = faulty
        self._plan(draw)

    def _plan(self, draw: random.Random) -> None:
        if self.faulty:
            for name in DEPENDENCIES:
                if draw.random() < 0.7:
                    since = draw.randint(0, 3_000)
                    self.down[name] = (since, since + draw.choice((500, 4_000, 15_000)))
        policy = Policy(quota_lease_ms=draw.choice((2_500, 10_000)), redispatch_max_ms=4_000)
        for shard in self.shards:
            shard.append(PolicySet(partition=shard.number, number=1, policy=policy))
        self._to_actor(PolicySet(partition=0, number=1, policy=policy))
        for number in range(draw.randint(8, 70)):
            shard = draw.choice(self.shards)
            run_id = f"run-{number}"
            self.runs.append((shard.number, run_id))
            start = self._start(run_id, draw)
            self.time.after(draw.randint(0, 4_000), lambda s=shard, e=start: s.append(e))  # type: ignore[misc]
        self.time.after(0, self._beat)
        if self.faulty:
            for _ in range(draw.randint(0, 4)):
                self.time.after(draw.randint(0, 20_000), self._crash)

    def _start(self, run_id: str, draw: random.Random) -> RunStarted:
        steps = []
        for number in range(draw.randint(1, 3)):
            depends_on = tuple(draw.sample(DEPENDENCIES, draw.randint(0, 2)))
            self.depends_on[run_id, f"s{number}"] = depends_on
            steps.append(
                StepPlan(
                    name=f"s{number}",
                    depends_on=depends_on,
                    queue="default",
                    retry=RetryPolicy(max_infra_attempts=10_000, max_ms=2_000),
                )
            )
        return RunStarted(
            run_id=run_id, flow="f", flow_version=1, plan=Plan(steps=tuple(steps)), context=b"\x80",
            ttl_ms=86_400_000,
        )  # fmt: skip

    def _beat(self) -> None:
        for shard in self.shards:
            shard.tick()
            if self.time.random.random() < 0.1:
                shard.checkpoint()
        due = self.actors.next_log_deadline_ms
        if due is not None and due <= T0 + self.time.now_ms:
            self._to_actor(ClockTick(partition=0, number=len(self.faults)))
        if self.time.random.random() < 0.1:
            self.actors_saved = self.actors.parts()
        self.time.after(100, self._beat)

    def _crash(self) -> None:
        if self.time.random.random() < 0.5:
            self.time.random.choice(self.shards).crash()
            return
        saved = self.actors_saved.items()
        self.actors = (
            FaultPoints.restore(0, len(self.shards), saved)
            if self.actors_saved
            else FaultPoints(0, len(self.shards))
        )
        self._read_faults()

    def outputs(self, shard: Shard, outputs: list[Output]) -> None:
        """What a partition puts out; after a crash some of it for the second time."""
        for output in outputs:
            action = output.action
            if isinstance(action, Dispatch):
                self._hand_out(shard, action.handoff)
            elif isinstance(action, ReportFault):
                report = action.report
                place = (shard.number, report.offset, report.index)
                if self.reported.setdefault(place, report) != report:
                    raise BrokenPromiseError(f"{place} was reported otherwise before")
                delay = self.time.random.randint(1, 30)
                self.time.after(
                    delay,
                    lambda r=report: self._to_actor(r),
                    ("faults", shard.number),  # type: ignore[misc]
                )

    def _to_actor(self, event: object) -> None:
        self.faults.append(
            Record(len(self.faults), T0 + self.time.now_ms, b"", b"", event)  # type: ignore[arg-type]
        )
        self._read_faults()

    def _read_faults(self) -> None:
        while self.actors.position < len(self.faults):
            record = self.faults[self.actors.position]
            if record.offset < self.actors_judged:
                outputs = self.actors.apply(record)
            else:
                self.actors_judged = record.offset + 1
                outputs = self.promises.apply(self.actors, record)
                self._count()
                self.orders += len(outputs)
            for output in outputs:
                event = order_of(output)
                shard = self.shards[event.partition]
                delay = self.time.random.randint(1, 30)
                self.time.after(
                    delay,
                    lambda s=shard, e=event: s.append(e),
                    ("events", shard.number),  # type: ignore[misc]
                )

    def _closes(self, name: str) -> None:
        if not self.good[name]:
            raise BrokenPromiseError(f"{name} closed without any success")
        down_ms = self.time.now_ms - self.down[name][0] if self.is_down(name) else 0
        if down_ms > 1_500:
            raise BrokenPromiseError(f"{name} closed while it was down")

    def _count(self) -> None:
        for name, point in self.actors.points.items():
            failures = sum(r.failures for r in self.reported.values() if r.fault_point == name)
            if point.failures > failures:
                raise BrokenPromiseError(f"{name}: {point.failures} of {failures} failures")

    def is_down(self, name: str) -> bool:
        """Whether a dependency is away now."""
        since, until = self.down.get(name, (0, 0))
        return since <= self.time.now_ms < until

    def _hand_out(self, shard: Shard, handoff: Handoff) -> None:
        key = (handoff.run_id, handoff.step, handoff.epoch)
        if key in self.taken:
            return
        self.taken.add(key)
        if self.faulty and self.time.random.random() < 0.03:
            return  # its worker lost it before the start
        self.time.after(self.time.random.randint(1, 40), lambda: self._begin(shard, handoff))

    def _begin(self, shard: Shard, handoff: Handoff) -> None:
        if T0 + self.time.now_ms >= handoff.start_by_ms:
            return
        shard.append(
            StepStarted(
                run_id=handoff.run_id, step=handoff.step, epoch=handoff.epoch, worker="w",
                incarnation=1,
            )
        )  # fmt: skip
        names = self.depends_on[handoff.run_id, handoff.step]
        for name in names:
            self.arrivals[name].append(self.time.now_ms)
        broken = next((name for name in names if self.is_down(name)), None)
        span = self.span_ms()
        self.time.after(span, lambda: self._end(shard, handoff, broken))

    def span_ms(self) -> int:
        """How long an attempt takes that begins now."""
        return self.time.random.randint(SPAN_MS // 2, 2 * SPAN_MS)

    def _end(self, shard: Shard, handoff: Handoff, broken: str | None) -> None:
        fields = {"run_id": handoff.run_id, "step": handoff.step, "epoch": handoff.epoch}
        if broken is None:
            for name in self.depends_on[handoff.run_id, handoff.step]:
                self.good[name].append(self.time.now_ms)
            shard.append(StepCompleted(**fields, ops=msgspec.msgpack.encode([])))
        else:
            shard.append(
                StepFailed(
                    **fields, failure_type=FailureType.DEPENDENCY, dependency=broken,
                    error_class="down",
                )
            )  # fmt: skip

    def finished(self) -> bool:
        """All runs ended, all fault points healthy; or it has taken too long."""
        if self.time.now_ms > PATIENCE_MS:
            return True
        if self.time.now_ms < 5_000 or any(shard.fold.open_runs for shard in self.shards):
            return False
        return all(p.phase in (Phase.HEALTHY, Phase.HALF_OPEN, Phase.OPEN)
                   for p in self.actors.points.values())  # fmt: skip

    def run(self) -> Self:
        """To the end, and judge it."""
        self.time.run(self.finished)
        left = [
            (run_id, step.step, step.state)
            for shard in self.shards
            for run_id in shard.fold.run_ids()
            if (view := shard.fold.run(run_id)) is not None
            for step in view.steps
            if step.state is not StepState.COMPLETED
        ]
        if left:
            raise BrokenPromiseError(f"after {self.time.now_ms} ms: {left[:3]} of {len(left)}")
        for shard in self.shards:
            whole = Partition(shard.number)
            for record in shard.log:
                whole.apply(record)
            if whole.digest() != shard.fold.digest():
                raise BrokenPromiseError(f"partition {shard.number} is not the fold of its log")
        self._no_storm()
        return self

    def _no_storm(self) -> None:
        """A breaker that closes lets a few go, not the queue."""
        for name, (_, until) in self.down.items():
            late = [at for at in self.good[name] if at > until]
            if not late:
                continue
            first = late[0]
            burst = sum(first < at <= first + FIRST_MS for at in self.arrivals[name])
            if burst > FIRST_MAX:
                raise BrokenPromiseError(f"{burst} arrivals at {name} within {FIRST_MS} ms")
