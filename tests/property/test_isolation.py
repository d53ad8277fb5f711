"""What one run knows is in no part, handoff, transition, answer, package or snapshot of another."""

from __future__ import annotations

import random
import re

import msgspec
import pytest
from tests.unit.core.log import Log, pack, plan_of, step
from tests.unit.people.asking import decision

from dalsegno.schemas.control import ErasureRequested, StallSuspected, Verdict
from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    FailureType,
    InformationSupplied,
    RunCancelled,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepProgressed,
    StepStarted,
)
from dalsegno.schemas.outputs import Escalation, Handoff
from dalsegno.schemas.plan import Plan, RetryPolicy
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.snapshots.pace import Pace
from dalsegno.storage.snapshots.recorder import Recorder
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.core.actions import Audit, Dispatch, Escalate, Output, PutAside, Reply
from dalsegno.streams.core.effects import effect_key, recovery_key
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.state_codec import run_of
from dalsegno.streams.core.versions import view_past

RUNS = 8
STEPS = ("s0", "s1", "s2")
OF_RUNS = b"rscjvow"
MARKS = re.compile(rb"<(known|secret) of run (\d)>")


def known(run: int) -> str:
    return f"<known of run {run}>"


def secret(run: int) -> str:
    return f"<secret of run {run}>"


def plan() -> Plan:
    """All runs follow the same one, so that they share what can be shared."""
    quick = RetryPolicy(max_attempts=2, max_infra_attempts=3, initial_ms=500, max_ms=1_000)
    steps = (
        step(
            name, needs=STEPS[:number][-1:], reads=("name", "token"), writes=(f"f{number}",),
            may_write=("token",), depends_on=("mail",), retry=quick, timeout_ms=5_000,
        )
        for number, name in enumerate(STEPS)
    )  # fmt: skip
    return plan_of(*steps, secrets=("token",))


class Interleaved(Log):
    """Runs that share everything a partition has; each output is looked at as it leaves."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.out_there: dict[str, list[Handoff]] = {}
        self.asked: list[Escalation] = []
        self.seen: set[tuple[str, bytes]] = set()
        self.partition.versions.keep()
        self.store = WarmStore(MemoryTable(), "cluster/topic/0")
        self.recorder = Recorder(self.store.chains, self.store.load, Pace(), keep=64)
        self.versions = 0

    def put(self, event, **how) -> list[Output]:  # type: ignore[no-untyped-def]
        outputs = super().put(event, **how)
        for output in outputs:
            self.look(output)
        return outputs

    def look(self, output: Output) -> None:
        action = output.action
        raw = msgspec.msgpack.encode(action)
        if isinstance(action, Dispatch):
            owner = action.handoff.run_id
            self.out_there.setdefault(owner, []).append(action.handoff)
        elif isinstance(action, Audit):
            owner = action.transition.run_id
        elif isinstance(action, Reply):
            owner = action.answer.run_id
        elif isinstance(action, Escalate):
            owner = action.escalation.run_id
            self.asked.append(action.escalation)
        else:
            owner = action.letter.run_id if isinstance(action, PutAside) else ""
        for what, number in MARKS.findall(raw):
            assert owner == f"r{int(number)}", f"{action.channel} of {owner!r} has {raw!r}"
            self.seen.add((action.channel, what))
        if not isinstance(action, Dispatch | PutAside):
            assert b"<secret" not in raw, f"{action.channel} has a secret in clear text"

    def step_on(self) -> None:
        rng = self.rng
        run = rng.randrange(RUNS)
        name = f"r{run}"
        if rng.random() < 0.15:
            self.tick(rng.randrange(1, 8))
        if not self.out_there.get(name) or rng.random() < 0.05:
            context = {"name": known(run), "token": secret(run), "deep": [{"k": known(run)}]}
            self.put(
                RunStarted(
                    run_id=name, flow="f", flow_version=1, plan=plan(), context=pack(context),
                    ttl_ms=600_000, reply_to="client", source=known(run),
                )
            )  # fmt: skip
        else:
            self.report(run, rng.choice(self.out_there[name][-3:]))

    def report(self, run: int, handoff: Handoff) -> None:
        rng = self.rng
        who = {"run_id": handoff.run_id, "step": handoff.step, "epoch": handoff.epoch}
        told = {**who, "reply_to": "worker", "source": known(run)}
        key = effect_key(recovery_key(handoff.run_id, handoff.step), "act", 0)
        ops = [["set", [f"f{handoff.step[1:]}"], known(run)], ["set", ["token"], secret(run)]]
        choice = rng.randrange(10)
        self.put(StepStarted(**told, worker=known(run), incarnation=1))
        if choice < 4:
            self.put(StepCompleted(**told, ops=pack(ops)))
        elif choice == 4:
            self.put(StepProgressed(**told, progress=rng.randrange(9), save=known(run).encode()))
        elif choice == 5:
            undo = pack(known(run))
            self.put(EffectIntended(**told, effect="act", occurrence=0, key=key, undo_input=undo))
            result = pack(known(run))
            self.put(EffectConfirmed(**told, effect="act", occurrence=0, result=result))
        elif choice == 6:
            kind = rng.choice(tuple(FailureType))
            missing = ("more",) if kind is FailureType.MISSING_INFO else ()
            self.put(
                StepFailed(
                    **told, failure_type=kind, message=known(run), missing_fields=missing,
                    dependency="mail" if kind is FailureType.DEPENDENCY else "",
                )
            )  # fmt: skip
        elif choice == 7:
            self.put(
                StallSuspected(
                    **who, verdict=Verdict.SILENT, events_offset=len(self.records),
                    heartbeats_at_ms=self.now_ms, worker=known(run), evidence=known(run),
                )
            )  # fmt: skip
        elif choice == 8:
            self.put(
                InformationSupplied(
                    run_id=handoff.run_id, information_id=f"{known(run)} {len(self.records)}",
                    ops=pack([["set", ["more"], known(run)]]), origin=known(run),
                )
            )  # fmt: skip
        else:
            self.ends_or_is_decided(run)

    def ends_or_is_decided(self, run: int) -> None:
        mine = [each for each in self.asked if each.run_id == f"r{run}" and each.asked != "notice"]
        if mine and self.rng.random() < 0.8:
            kind = self.rng.choice(("retry", "skip", "cancel"))
            self.put(decision(mine[-1], kind, decided_by=known(run), reason=known(run)))
        elif self.rng.random() < 0.3:
            self.put(RunCancelled(run_id=f"r{run}", request_id=known(run), reason=known(run)))

    def check_parts(self) -> None:
        for key, value in self.partition.parts().items():
            found = {int(number) for _, number in MARKS.findall(key + value)}
            mine = {int(run_of(key)[0][1:])} if key[:1] in OF_RUNS and key[:1] else set()
            assert found <= mine, f"{key!r} has what is of runs {found}"

    def restore(self) -> None:
        self.partition = Partition.restore(0, self.partition.parts().items())
        self.partition.versions.keep()

    def check_snapshots(self) -> None:
        """Each version of each live run, read back from the links of its chain."""
        made = self.partition.versions.drain()
        self.store.put(dict(self.partition.capture()), Place(len(self.records), 0))
        self.recorder.note(made)
        self.recorder.everything()
        self.recorder.write(10.0)
        for run in range(RUNS):
            whose = self.partition.versions.whose(f"r{run}")
            if whose is None:
                continue
            for version in range(1, whose.newest + 1):
                found = self.recorder.look(whose, version, [])
                if found.past is None:
                    continue
                raw = msgspec.msgpack.encode(view_past(found.past, whose))
                marks = MARKS.findall(raw)
                assert {number for _, number in marks} <= {b"%d" % run}, f"r{run} has {raw!r}"
                assert {what for what, _ in marks} <= {b"known"}, "a secret is in a snapshot"
                self.versions += bool(marks)


@pytest.mark.parametrize("seed", range(15))
def test_what_one_run_knows_is_nowhere_in_another(seed: int) -> None:
    log = Interleaved(seed)
    for number in range(300):
        log.step_on()
        if number % 10 == 0:
            log.check_parts()
        if number % 60 == 50:
            log.check_snapshots()
        if number % 97 == 0:
            log.restore()
    log.check_parts()
    assert log.versions
    assert {("queue.default", b"known"), ("queue.default", b"secret")} <= log.seen
    assert {("transitions", b"known"), ("escalations", b"known")} <= log.seen
    run = log.rng.randrange(RUNS)
    log.put(ErasureRequested(run_id=f"r{run}", erasure_id="e", reason="asked", requested_by="ana"))
    raw = b"".join(key + value for key, value in log.partition.parts().items())
    assert known(run).encode() not in raw
    assert secret(run).encode() not in raw
