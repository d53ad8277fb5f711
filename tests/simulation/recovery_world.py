"""A world of mass failures: one partition, many runs, freezes and releases, restores at any event.

Everything follows from the seed. After every event the promises about recovery are checked from
what came out, by a model that knows the rules and nothing of the code.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from tests.simulation.recovery_promises import RecoveryPromises

from dalsegno.schemas.control import (
    ClockTick,
    Policy,
    PolicySet,
    RecoveryFrozen,
    RecoveryReleased,
    StallSuspected,
    Verdict,
)
from dalsegno.schemas.events import (
    FailureType,
    InformationSupplied,
    RunCancelled,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepStarted,
)
from dalsegno.schemas.outputs import Handoff
from dalsegno.schemas.plan import Plan, RetryPolicy, StepPlan
from dalsegno.streams.core.actions import Dispatch
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

START_MS = 1_700_000_000_000
QUICK = RetryPolicy(initial_ms=200, max_ms=2_000, max_attempts=4, max_infra_attempts=6)
SCOPES = (("", ""), ("a", ""), ("", "bank"), ("b", "bank"))
pack = msgspec.msgpack.encode
EVENTS = 250


class RecoveryWorld:
    """One seed. `run` raises `BrokenPromiseError`, or returns the digest of the last state."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.partition = Partition(0)
        self.now_ms = START_MS
        self.number = 0
        self.out: list[Handoff] = []
        self.running: list[Handoff] = []
        self.frozen: set[tuple[str, str]] = set()
        self.runs = 0
        self.width = self.rng.choice([0, 3, 5])
        self.promises = RecoveryPromises(self.width)

    def run(self) -> bytes:
        """Until every run has ended."""
        policy = Policy(
            recovery_width_max=self.width,
            run_recoveries_max=self.rng.choice([3, 1_000]),
            start_limit_ms=20_000,
        )
        self.put(PolicySet(partition=0, number=1, policy=policy))
        for _ in range(EVENTS):
            self.step()
        self.calm()
        return self.partition.digest()

    def put(self, event: Any) -> None:
        """Appends and applies an event; now and then on a restored partition."""
        if self.rng.random() < 0.05:
            self.restore()
        record = Record(
            offset=self.partition.position,
            at_ms=self.now_ms,
            key=getattr(event, "run_id", "").encode(),
            value=b"v",
            event=event,
        )
        outputs = self.partition.apply(record)
        self.promises.check(self.partition, event, self.now_ms, outputs)
        for output in outputs:
            if isinstance(output.action, Dispatch):
                self.out.append(output.action.handoff)

    def restore(self) -> None:
        parts = self.partition.parts()
        again = Partition.restore(0, parts.items())
        self.promises.restored(self.partition, again)
        self.partition = again

    def tick(self, ms: int = 1_000) -> None:
        self.now_ms += ms
        self.number += 1
        self.put(ClockTick(partition=0, number=self.number))

    def step(self) -> None:
        """Something happens."""
        rng = self.rng
        draw = rng.random()
        if draw < 0.12:
            self.begin()
        elif draw < 0.30:
            self.tick(rng.choice([200, 1_000, 1_000, 5_000]))
        elif draw < 0.36:
            self.steer()
        elif draw < 0.39:
            self.lose_all()
        elif draw < 0.41 and self.runs:
            self.put(RunCancelled(run_id=f"run-{rng.randrange(self.runs)}", request_id="c"))
        elif draw < 0.65 or not self.running:
            self.start_one()
        else:
            self.report(fails=rng.random() < 0.4)

    def begin(self) -> None:
        rng = self.rng
        names = [f"s{i}" for i in range(rng.randint(1, 4))]
        steps = tuple(
            StepPlan(
                name=name,
                queue="default",
                needs=tuple(n for n in names[:i] if rng.random() < 0.5),
                may_write=("fact",) if i == 0 else (),
                depends_on=("bank",) if rng.random() < 0.5 else (),
                retry=QUICK,
                timeout_ms=rng.choice([1_000, 30_000]),
            )
            for i, name in enumerate(names)
        )
        event = RunStarted(
            run_id=f"run-{self.runs}",
            flow=rng.choice("abc"),
            flow_version=1,
            plan=Plan(steps=steps),
            context=b"\x80",
            ttl_ms=rng.choice([120_000, 86_400_000]),
        )
        self.runs += 1
        self.promises.started(event)
        self.put(event)

    def steer(self) -> None:
        self.number += 1
        scope = flow, point = self.rng.choice(SCOPES)
        if scope in self.frozen:
            self.frozen.discard(scope)
            rate = self.rng.choice([0, 1, 3])
            self.put(
                RecoveryReleased(
                    partition=0, number=self.number, flow=flow, fault_point=point, rate_per_s=rate
                )
            )
        else:
            self.frozen.add(scope)
            self.put(RecoveryFrozen(partition=0, number=self.number, flow=flow, fault_point=point))

    def start_one(self) -> None:
        if not self.out:
            return
        handoff = self.out.pop(self.rng.randrange(len(self.out)))
        self.running.append(handoff)
        name, epoch = handoff.step, handoff.epoch
        self.put(StepStarted(run_id=handoff.run_id, step=name, epoch=epoch, worker="w"))

    def report(self, *, fails: bool) -> None:
        """An attempt ends by its own word."""
        handoff = self.running.pop(self.rng.randrange(len(self.running)))
        names = {"run_id": handoff.run_id, "step": handoff.step, "epoch": handoff.epoch}
        if not fails:
            ops: list[object] = []
            if handoff.step == "s0" and self.rng.random() < 0.5:
                ops = [["set", ["fact"], 1]]
            self.put(StepCompleted(**names, ops=pack(ops)))
            return
        kinds = (FailureType.TRANSIENT, FailureType.DEPENDENCY, FailureType.MISSING_INFO)
        kind = self.rng.choice(kinds)
        missing = ("fact",) if kind is FailureType.MISSING_INFO else ()
        self.put(StepFailed(**names, failure_type=kind, missing_fields=missing))

    def lose_all(self) -> None:
        """A worker pool dies: verdicts on all that runs."""
        lost, self.running = self.running, []
        for handoff in lost:
            self.put(
                StallSuspected(
                    run_id=handoff.run_id,
                    step=handoff.step,
                    epoch=handoff.epoch,
                    verdict=Verdict.SILENT,
                    events_offset=self.partition.position,
                    heartbeats_at_ms=self.now_ms,
                )
            )

    def calm(self) -> None:
        """Nothing fails any more, scopes are released, questions are answered: all runs end."""
        while self.frozen:
            scope = flow, point = min(self.frozen)
            self.frozen.discard(scope)
            self.number += 1
            self.put(
                RecoveryReleased(partition=0, number=self.number, flow=flow, fault_point=point)
            )
        for _ in range(300):
            while self.out:
                self.start_one()
            while self.running:
                self.report(fails=False)
            if not self.partition.open_runs:
                break
            for run_id in list(self.partition.run_ids()):
                view = self.partition.run(run_id)
                if view is not None and view.waiting_for == "information":
                    self.put(
                        InformationSupplied(
                            run_id=run_id,
                            information_id=f"i{self.number}",
                            ops=pack([["set", ["fact"], 1]]),
                            origin="desk",
                        )
                    )
            self.tick(5_000)
        self.promises.ended(self.partition)
