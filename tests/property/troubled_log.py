"""Random logs of runs in trouble: late, lost and failed attempts, people who decide, early reports.

Two flows share a partition; what each unit put out is kept line by line.
"""

from __future__ import annotations

import random

import msgspec
from tests.property.plans import PLANS
from tests.unit.core.log import Log, pack
from tests.unit.people.asking import decision

from dalsegno.schemas.control import Policy, PolicySet, StallSuspected, Verdict
from dalsegno.schemas.events import (
    FailureType,
    InformationSupplied,
    RunCancelled,
    RunEvent,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepReleased,
    StepStarted,
)
from dalsegno.schemas.outputs import Escalation, Handoff, StepState, Transition
from dalsegno.streams.core.actions import Audit, Dispatch, Escalate, Output

POLICY = Policy(start_limit_ms=4_000, start_margin_ms=500, person_wait_ms=60_000,
                stub_keep_ms=10**9, early_wait_ms=20_000, reminder_first_ms=4_000)  # fmt: skip
FLOWS = ("calm", "rough")
Line = Transition | Escalation


class TroubledLog(Log):
    """`lines`: transitions, each followed by the questions of its unit."""

    def __init__(self, seed: int, events: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.lines: list[Line] = []
        self.by_record: list[list[Output]] = []
        self.flow_of: dict[str, str] = {}
        self.handed: dict[tuple[str, str], list[Handoff]] = {}
        self.asked: dict[tuple[str, str], Escalation] = {}
        self.put(PolicySet(partition=0, number=1, policy=POLICY))
        while len(self.records) < events:
            self._something()

    def put(self, event, **how) -> list[Output]:
        outputs = super().put(event, **how)
        self.by_record.append(outputs)
        asked: list[Line] = []
        for output in outputs:
            action = output.action
            if isinstance(action, Dispatch):
                handoff = action.handoff
                self.handed.setdefault((handoff.run_id, handoff.step), []).append(handoff)
            elif isinstance(action, Escalate):
                asked.append(action.escalation)
                if action.escalation.asked != "notice":
                    place = (action.escalation.run_id, action.escalation.step)
                    self.asked[place] = action.escalation
            elif isinstance(action, Audit):
                self.lines += [action.transition, *asked]
                asked = []
        return outputs

    def _something(self) -> None:
        rng = self.rng
        what = rng.choices(
            (self._starts, self._goes_right, self._fails, self._is_lost, self._is_late,
             self._reports_by_itself, self._person_decides, self._time_passes, self._repeats,
             self._informed),
            (4, 30, 14, 6, 6, 8, 14, 14, 3, 3),
        )[0]  # fmt: skip
        if self.rng.random() < 0.2:
            # What comes next finds deadlines that have passed before it.
            self.now_ms += self.rng.choice((1_000, 6_000, 61_000))
        what()

    def _starts(self) -> None:
        run_id = f"r{len(self.flow_of)}"
        flow = self.flow_of[run_id] = self.rng.choice(FLOWS)
        plan = self.rng.choice(PLANS)
        if self.rng.random() < 0.5:
            steps = tuple(msgspec.structs.replace(step, goal="a goal") for step in plan.steps)
            plan = msgspec.structs.replace(plan, steps=steps)
        if self.rng.random() < 0.3:
            # Its service is quicker than whoever starts it.
            self._report(RunStarted, run_id)
        queue = "nowhere" if self.rng.random() < 0.05 else "default"
        if queue != "default":
            steps = tuple(msgspec.structs.replace(step, queue=queue) for step in plan.steps)
            plan = msgspec.structs.replace(plan, steps=steps)
        context = {} if self.rng.random() < 0.2 else {"input": 1, "more": 2}
        self.put(
            RunStarted(run_id=run_id, flow=flow, flow_version=1, plan=plan, context=pack(context))
        )

    def _attempt(self) -> Handoff | None:
        """Mostly one that is out, sometimes one that is over."""
        newest = [each[-1] for each in self.handed.values()]
        out = [each for each in newest[-12:] if self._is_out(each)]
        choice = out if out and self.rng.random() < 0.9 else newest[-8:]
        return self.rng.choice(choice) if choice else None

    def _is_out(self, handoff: Handoff) -> bool:
        view = self.partition.run(handoff.run_id)
        if view is None or view.kind != "run":
            return False
        state = next(step.state for step in view.steps if step.step == handoff.step)
        return state in {StepState.DISPATCHED, StepState.RUNNING}

    def _who(self, handoff: Handoff) -> dict:
        return {"run_id": handoff.run_id, "step": handoff.step, "epoch": handoff.epoch}

    def _begun(self) -> Handoff | None:
        handoff = self._attempt()
        if handoff is not None and self.rng.random() < 0.9:
            self.put(StepStarted(**self._who(handoff), worker="w", incarnation=1))
        return handoff

    def _goes_right(self) -> None:
        handoff = self._begun()
        if handoff is not None:
            names = handoff.writes if self.rng.random() < 0.9 else ("undeclared",)
            ops = pack([["set", [name], self.rng.randrange(9)] for name in names])
            self.put(StepCompleted(**self._who(handoff), ops=ops))

    def _fails(self) -> None:
        handoff = self._begun()
        if handoff is not None:
            kind = self.rng.choice(tuple(FailureType))
            missing = ("rare",) if kind is FailureType.MISSING_INFO else ()
            said = "Declined" if self.rng.random() < 0.7 else ""
            self.put(
                StepFailed(
                    **self._who(handoff), failure_type=kind, missing_fields=missing,
                    error_class=said,
                )
            )  # fmt: skip

    def _is_lost(self) -> None:
        handoff = self._attempt()
        if handoff is None:
            return
        if self.rng.random() < 0.3:
            self.put(StepReleased(**self._who(handoff), reason="no_compatible_worker"))
            return
        if self.rng.random() < 0.7:
            self.put(StepStarted(**self._who(handoff), worker="w", incarnation=1))
        self.put(
            StallSuspected(
                **self._who(handoff), verdict=self.rng.choice(tuple(Verdict)),
                events_offset=len(self.records), heartbeats_at_ms=self.now_ms, worker="w",
                incarnation=2,
            )
        )  # fmt: skip

    def _is_late(self) -> None:
        old = [handoff for each in self.handed.values() for handoff in each[:-1]]
        if old:
            who = self._who(self.rng.choice(old[-10:]))
            self.put(StepCompleted(**who, ops=pack([])))

    def _report(self, _: type[RunEvent], run_id: str) -> None:
        who = {"run_id": run_id, "step": self.rng.choice(("own", "again", "asked")), "epoch": 0}
        who["attempt"] = self.rng.randrange(1, 4)
        kind = self.rng.randrange(3)
        if kind == 0:
            self.put(StepStarted(**who))
        elif kind == 1:
            self.put(StepFailed(**who, failure_type=self.rng.choice(tuple(FailureType))))
        else:
            names = {"own": "one", "again": "two"}
            ops = [["set", [names[who["step"]]], 1]] if who["step"] in names else []
            self.put(StepCompleted(**who, ops=pack(ops)))

    def _reports_by_itself(self) -> None:
        if self.flow_of:
            self._report(RunStarted, self.rng.choice(list(self.flow_of)[-6:]))

    def _person_decides(self) -> None:
        if not self.asked:
            return
        package = self.rng.choice(list(self.asked.values())[-6:])
        kind = self.rng.choice(("retry", "retry", "skip", "approve", "reject"))
        name = f"{kind} {len(self.records)}"
        more = {"package_digest": b"another"} if self.rng.random() < 0.1 else {}
        self.put(decision(package, kind, decision_id=name, **more))

    def _time_passes(self) -> None:
        self.tick(self.rng.choice((1, 2, 5, 30)))

    def _repeats(self) -> None:
        self.put(self.rng.choice(self.records[-20:]).event)

    def _informed(self) -> None:
        if not self.flow_of:
            return
        run_id = self.rng.choice(list(self.flow_of)[-6:])
        number = str(len(self.records))
        if self.rng.random() < 0.2:
            self.put(RunCancelled(run_id=run_id, request_id=number))
        else:
            ops = pack([["set", [self.rng.choice(("rare", "input"))], 1]])
            expected = 1 if self.rng.random() < 0.2 else None
            self.put(
                InformationSupplied(
                    run_id=run_id, information_id=number, ops=ops, origin="test",
                    expected_run_version=expected,
                )
            )  # fmt: skip
