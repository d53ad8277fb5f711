"""P1 to P7 after every event, over random interleavings of events, timers, repeats and crashes."""

from __future__ import annotations

import os

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.property.plans import EXTENSIONS, PLANS
from tests.property.promises import Promises

from dalsegno.schemas.control import ClockTick, Policy, PolicySet, StallSuspected, Verdict
from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    FailureType,
    InformationSupplied,
    PlanExtended,
    RiskFlagged,
    RunCancelled,
    RunPaused,
    RunResumed,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepProgressed,
    StepReleased,
    StepStarted,
)
from dalsegno.schemas.outputs import Handoff
from dalsegno.streams.core.effects import effect_key, recovery_key
from dalsegno.streams.core.record import Unreadable

pack = msgspec.msgpack.encode
RUNS = ("r0", "r1", "r2")
OWN_STEPS = ("own", "again", "asked")
POLICY = Policy(
    start_limit_ms=4_000, start_margin_ms=500, stub_keep_ms=60_000, early_wait_ms=5_000,
    person_wait_ms=40_000, early_events_max=4, step_concurrency_max=2,
)  # fmt: skip

runs = st.sampled_from(RUNS)
picks = st.integers(0, 2**20)
ids = st.sampled_from(("i1", "i2", "i3"))


class PartitionMachine(RuleBasedStateMachine):
    """Handoffs of every age are answered in every way; the owner crashes at random moments."""

    def __init__(self) -> None:
        super().__init__()
        self.promises = Promises()
        self.number = 0
        self.put(PolicySet(partition=3, number=1, policy=POLICY))

    def put(self, event) -> None:
        self.promises.append(event)

    @property
    def handoffs(self) -> list[Handoff]:
        """All that were given out, oldest first within a run."""
        return [h for story in self.promises.stories.values() for h in story.handoffs.values()]

    @property
    def open(self) -> list[Handoff]:
        """Those whose attempt could still do something."""
        return [
            handoff
            for story in self.promises.stories.values()
            for (step, epoch), handoff in story.handoffs.items()
            if epoch == story.epochs[step] and step not in story.completed
        ]

    @property
    def superseded(self) -> list[Handoff]:
        """Those whose step has been given out again since."""
        stories = self.promises.stories
        return [h for h in self.handoffs if h.epoch < stories[h.run_id].epochs[h.step]]

    def about(self, pick: int, **more) -> dict:
        """What a report says of the attempt it is of: mostly a live one, some old or unheard of."""
        reply_to = "w1" if pick % 3 else ""
        draw, pick = pick % 10, pick // 10
        choice = self.open if draw < 6 else self.handoffs
        if draw == 9 or not choice:
            step = OWN_STEPS[pick % len(OWN_STEPS)]
            who = {"run_id": RUNS[pick % len(RUNS)], "step": step, "epoch": 0, "attempt": pick % 4}
        else:
            handoff = choice[pick % len(choice)]
            epoch = handoff.epoch + (draw == 8)
            who = {"run_id": handoff.run_id, "step": handoff.step, "epoch": epoch}
        return {**who, "reply_to": reply_to, **more}

    def start_open(self, pick: int) -> dict:
        """Starts a live attempt, and says which."""
        handoff = self.open[pick % len(self.open)]
        who = {"run_id": handoff.run_id, "step": handoff.step, "epoch": handoff.epoch}
        self.put(StepStarted(**who, worker="w1", incarnation=7, reply_to="w1"))
        return who

    @initialize()
    def runs_start(self):
        for pick, run_id in enumerate(RUNS):
            self.start(run_id, PLANS[pick], 6 + pick)

    @rule(run_id=runs, plan=st.sampled_from(PLANS), pick=picks)
    def run_starts(self, run_id, plan, pick):
        self.start(run_id, plan, pick)

    def start(self, run_id, plan, pick):
        context = {"input": pick % 2, **({"log": ["x" * 300]} if pick % 2 else {})}
        self.put(
            RunStarted(
                run_id=run_id,
                flow="f",
                flow_version=1,
                plan=plan,
                context=pack(context),
                ttl_ms=(30_000, 86_400_000)[pick % 2],
                more=pick % 11 == 10,
                risk_flags=("fraud",) if pick % 13 == 12 else (),
                reply_to="client" if pick % 3 else "",
            )
        )

    @rule(pick=picks)
    def attempt_starts(self, pick):
        self.put(StepStarted(**self.about(pick), worker="w1", incarnation=7))

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def some_attempts_go_right(self, pick):
        for _ in range(1 + pick % 3):
            if self.open:
                who = self.start_open(pick)
                self.put(StepCompleted(**who, ops=self.ops_for(who, pick % 12)))

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def attempt_acts_and_goes_right(self, pick):
        who = self.start_open(pick)
        key = effect_key(recovery_key(who["run_id"], who["step"]), "card", 0)
        self.put(EffectIntended(**who, effect="card", occurrence=0, key=key, reply_to="w1"))
        if pick % 3:
            self.put(EffectConfirmed(**who, effect="card", occurrence=0, result=pack(pick)))
        if pick % 2:
            self.put(StepCompleted(**who, ops=self.ops_for(who, pick)))

    @precondition(lambda self: self.open)
    @rule(pick=picks, kind=st.sampled_from(FailureType), after=st.sampled_from((None, 0, 9_000)))
    def attempt_starts_and_fails(self, pick, kind, after):
        who = self.start_open(pick)
        missing = ("more",) if kind is FailureType.MISSING_INFO and pick % 2 else ()
        self.put(StepFailed(**who, failure_type=kind, missing_fields=missing, retry_after_ms=after))

    @precondition(lambda self: self.open)
    @rule(pick=picks, verdict=st.sampled_from(Verdict))
    def attempt_starts_and_is_suspected(self, pick, verdict):
        who = self.start_open(pick)
        folding = self.promises.folding
        self.put(
            StallSuspected(
                **who,
                verdict=verdict,
                events_offset=len(folding.log),
                heartbeats_at_ms=folding.at_ms,
                worker="w1",
                incarnation=8,
            )
        )

    def ops_for(self, who: dict, pick: int) -> bytes:
        story = self.promises.stories.get(who["run_id"])
        step = story.steps.get(who["step"]) if story is not None else None
        ops: list[list] = []
        for name in () if step is None else step.writes:
            if name == "log" and isinstance(story.context.get("log"), list):
                ops.append(["app", ["log"], [{"by": who["step"], "n": pick}]])
            elif name == "log":
                ops.append(["set", ["log"], ["y" * 280]])
            else:
                ops.append(["set", [name], pick % 7])
        match pick % 17:
            case 3 | 13:
                ops.append(["set", ["undeclared"], 1])
            case 14:
                ops.append(["del", ["log", "nothing"]])
            case 15:
                ops = ops[1:]
            case 16:
                return b"\xc1"
        return pack(ops)

    @rule(pick=picks, conflict=st.booleans())
    def attempt_completes(self, pick, conflict):
        who = self.about(pick)
        expected = 1 if conflict and pick % 4 == 0 else None
        version = 2 if pick % 7 == 3 else 0
        done = StepCompleted(
            **who,
            ops=self.ops_for(who, pick),
            expected_run_version=expected,
            context_schema_version=version,
        )
        self.put(done)

    @rule(pick=picks, kind=st.sampled_from(FailureType), after=st.sampled_from((None, 0, 9_000)))
    def attempt_fails(self, pick, kind, after):
        missing = ("more",) if kind is FailureType.MISSING_INFO and pick % 2 else ()
        self.put(
            StepFailed(
                **self.about(pick), failure_type=kind, missing_fields=missing, retry_after_ms=after
            )
        )

    @rule(pick=picks)
    def attempt_saves(self, pick):
        save = b"save %d" % pick if pick % 2 else None
        self.put(StepProgressed(**self.about(pick), progress=pick % 50, save=save))

    @rule(pick=picks)
    def attempt_is_released(self, pick):
        self.put(StepReleased(**self.about(pick)))

    @rule(pick=picks, effect=st.sampled_from(("card", "mail")), wrong=st.integers(0, 9))
    def effect_is_intended(self, pick, effect, wrong):
        who = self.about(pick)
        key = effect_key(recovery_key(who["run_id"], who["step"]), effect, pick % 2)
        key = "wrong" if wrong == 0 else key
        self.put(EffectIntended(**who, effect=effect, occurrence=pick % 2, key=key))

    @rule(pick=picks, effect=st.sampled_from(("card", "mail")))
    def effect_is_confirmed(self, pick, effect):
        result = pack(pick % 5)
        who = self.about(pick)
        self.put(EffectConfirmed(**who, effect=effect, occurrence=pick % 2, result=result))

    @rule(pick=picks, verdict=st.sampled_from(Verdict), stale=st.booleans())
    def monitor_suspects(self, pick, verdict, stale):
        who = self.about(pick, reply_to="")
        del who["reply_to"]
        who.pop("attempt", None)
        folding = self.promises.folding
        offset = 1 if stale else len(folding.log)
        self.put(
            StallSuspected(
                **who,
                verdict=verdict,
                events_offset=offset,
                heartbeats_at_ms=folding.at_ms - (90_000 if pick % 9 == 8 else 0),
                worker="w1",
                incarnation=8,
            )
        )

    @rule(run_id=runs, id_=ids, pick=picks)
    def information_comes(self, run_id, id_, pick):
        name = ("more", "input", "one")[pick % 3]
        op = ["del", [name]] if pick % 8 == 7 else ["set", [name], pick % 9]
        expected = 3 if pick % 10 == 9 else None
        self.put(
            InformationSupplied(
                run_id=run_id,
                information_id=id_,
                ops=pack([op]),
                origin="person",
                expected_run_version=expected,
                reply_to="c",
                context_schema_version=2 if pick % 5 == 3 else 0,
            )
        )

    @rule(run_id=runs, id_=ids, steps=st.sampled_from(EXTENSIONS), last=st.booleans())
    def plan_is_extended(self, run_id, id_, steps, last):
        self.put(PlanExtended(run_id=run_id, extension_id=id_, steps=steps, last=last))

    @rule(run_id=runs, id_=ids, pick=picks)
    def risk_is_flagged(self, run_id, id_, pick):
        flag = "vip" if pick % 8 else "fraud"
        self.put(RiskFlagged(run_id=run_id, flag_id=id_, flag=flag))

    @rule(run_id=runs, id_=ids, pick=picks)
    def run_is_paused_resumed_or_cancelled(self, run_id, id_, pick):
        # Mostly in pairs, or most of what follows would wait.
        if pick % 4:
            self.put(RunPaused(run_id=run_id, request_id=id_))
        if pick % 4 != 1:
            self.put(RunResumed(run_id=run_id, request_id=id_ + "'", reply_to="c"))
        if pick % 16 == 0:
            self.put(RunCancelled(run_id=run_id, request_id=id_, reply_to="c"))

    @rule(run_id=runs)
    def record_is_unreadable(self, run_id):
        self.put(Unreadable("bad_frame", "not a record of ours", run_id, "StepStarted"))

    @rule(pick=picks)
    def event_is_repeated(self, pick):
        log = self.promises.folding.log
        self.put(log[-1 - pick % min(len(log), 12)].event)

    @rule(
        ms=st.sampled_from((1, 200, 900, 900, 3_000, 3_000, 3_000, 6_000, 6_000, 50_000)),
        ticks=st.integers(0, 3),
    )
    def time_passes(self, ms, ticks):
        self.promises.folding.at_ms += ms
        for _ in range(ticks):
            self.promises.folding.at_ms += 1_000
            self.number += 1
            self.put(ClockTick(partition=3, number=self.number))

    @rule(live=st.booleans())
    def next_deadline_comes(self, live):
        folding = self.promises.folding
        due = folding.partition.next_log_deadline_ms
        if due is not None and not live:
            folding.at_ms = max(folding.at_ms, min(due, folding.at_ms + 20_000))
        for _ in range(3 if live else 1):
            folding.at_ms += 3_000 * live
            self.number += 1
            self.put(ClockTick(partition=3, number=self.number))

    @precondition(lambda self: self.superseded)
    @rule(pick=picks)
    def superseded_attempt_reports(self, pick):
        handoff = self.superseded[pick % len(self.superseded)]
        who = {"run_id": handoff.run_id, "step": handoff.step, "epoch": handoff.epoch}
        match pick % 4:
            case 0:
                self.put(StepStarted(**who, worker="w1", incarnation=7, reply_to="w1"))
            case 1:
                self.put(StepFailed(**who, failure_type=FailureType.TRANSIENT))
            case _:
                self.put(StepCompleted(**who, ops=self.ops_for(who, pick % 12)))

    @precondition(lambda self: self.superseded)
    @rule(pick=picks, starts=st.booleans())
    def superseded_attempt_reports_beside_its_successor(self, pick, starts):
        """The successor runs or is about to start: whose report counts, only the epoch says."""
        old = self.superseded[pick % len(self.superseded)]
        story = self.promises.stories[old.run_id]
        who = {"run_id": old.run_id, "step": old.step, "epoch": old.epoch}
        if starts:
            newest = {**who, "epoch": story.epochs[old.step]}
            self.put(StepStarted(**newest, worker="w1", incarnation=7, reply_to="w1"))
        self.put(StepCompleted(**who, ops=self.ops_for(who, pick % 12)))

    @rule()
    def append_time_goes_back(self):
        self.promises.folding.at_ms -= 2_500

    @rule()
    def state_is_captured(self):
        self.promises.folding.capture()

    @rule()
    def owner_crashes(self):
        self.promises.folding.crash()

    def teardown(self):
        folding = self.promises.folding
        folding.check_from_zero()
        folding.capture()
        folding.crash()


# The same examples on every machine, unless somebody explores: `DALSEGNO_EXAMPLES=5000`.
EXAMPLES = int(os.environ.get("DALSEGNO_EXAMPLES", "0"))
PartitionMachine.TestCase.settings = settings(
    max_examples=EXAMPLES or 120,
    stateful_step_count=60,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestPartitionPromises = PartitionMachine.TestCase
