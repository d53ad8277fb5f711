"""A world of people: risky and failing steps, and decisions that are late, double, stale or forged.

One seed is one schedule. The checks know only events, handoffs, packages and transitions:

* P7: a risky step is given out only under an approval of exactly these values and this plan.
* The first decision on a package counts; a second one is refused with `already_decided`.
* What was bound to another package, or made on what has moved since, changes nothing.
* Every package passes the linter, and holds no value of a secret field.
* Reminders are bounded; nobody answers: the run ends as the package said, and not before its time.
* Whose key is limited decides nothing else.
* Once a step was unsafe nothing further is given out until a person decides.
* A field that the plan says is a number never holds anything else from outside.
"""

from __future__ import annotations

from random import Random

import msgspec
from tests.simulation.promises import BrokenPromiseError
from tests.unit.core.log import (
    Log,
    escalations,
    handoffs,
    pack,
    plan_of,
    step,
    transitions,
)

from dalsegno.schemas.control import DecisionKey, DecisionMade, DecisionType
from dalsegno.schemas.events import FailureType, InformationSupplied, StepFailed
from dalsegno.schemas.outputs import Escalation, Handoff, Outcome, RunState, Transition
from dalsegno.schemas.plan import ContextField, FieldType, Plan, RetryPolicy, Risk
from dalsegno.schemas.values import unpack_map
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.people.lint import lint

SECRET = "4111-2222-3333"
KINDS = tuple(DecisionType)
LIMITED = "cem"
ALLOWED = frozenset({DecisionType.RETRY, DecisionType.APPROVE})
KEYS = (
    DecisionKey(key_id="ana-1", public_key=b"a" * 32, holder="ana"),
    DecisionKey(key_id="ben-1", public_key=b"b" * 32, holder="ben", flows=("flow", "other")),
    DecisionKey(
        key_id="cem-1", public_key=b"c" * 32, holder=LIMITED, decisions=tuple(sorted(ALLOWED))
    ),
)
REMINDERS_MAX = 5


def plan() -> Plan:
    """Five steps: one risky, two that may fail, one that misses a field."""
    retry = RetryPolicy(max_attempts=1, max_infra_attempts=2)
    return plan_of(
        step("quote", reads=("order",), writes=("price",), retry=retry),
        step("pay", needs=("quote",), reads=("price", "card"), writes=("receipt",),
             risk=Risk.MONEY, risk_reason="does not come back", retry=retry),
        step("ask", reads=("rate",), writes=("rated",), retry=retry),
        step("ship", needs=("pay", "ask"), reads=("receipt", "rated"), writes=("parcel",),
             retry=retry),
        secrets=("card",),
        fields=(ContextField(name="rate", type=FieldType.NUMBER, text="Of the day."),),
    )  # fmt: skip


class PeopleWorld:
    """Drives one run from a seed and checks every output."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.log = Log()
        self.packages: list[Escalation] = []
        self.made: list[DecisionMade] = []
        self.first: dict[str, DecisionMade] = {}
        self.approved: tuple[bytes, bytes] | None = None
        self.out: list[Handoff] = []
        self.number = 0
        self.ended = False
        self.shut: set[str] = set()
        self.log.policy(decision_keys=KEYS)
        self.see(self.log.start(plan(), context={"order": 1, "card": SECRET}, ttl_ms=10**10))

    def run(self, moves: int = 60) -> None:
        """So many moves, then silence until the run has ended."""
        for _ in range(moves):
            if self.ended:
                return
            self.move()
        for _ in range(400):
            due = self.log.partition.next_log_deadline_ms
            if self.ended or due is None:
                break
            if not self.log.partition.needs_tick:
                # Nothing runs: time may leap to what is due next.
                self.log.now_ms = max(self.log.now_ms, due)
            self.see(self.log.tick(1))
            for handoff in list(self.out):
                self.work(handoff, fails=False)
        if not self.ended:
            raise BrokenPromiseError("silence has no outcome: the run never ends")

    def move(self) -> None:
        """One thing happens."""
        roll = self.rng.random()
        if roll < 0.35 and self.out:
            self.work(self.rng.choice(self.out), fails=self.rng.random() < 0.5)
        elif roll < 0.75 and self.packages:
            self.decide()
        elif roll < 0.82:
            self.inform()
        elif roll < 0.9:
            parts = self.log.partition.parts()
            self.log.partition = Partition.restore(0, parts.items())
            if self.log.partition.parts() != parts:
                raise BrokenPromiseError("P2: a restore changed the state")
        else:
            self.see(self.log.tick(self.rng.randrange(1, 4)))

    def work(self, handoff: Handoff, *, fails: bool) -> None:
        """A worker runs what it was given."""
        self.out.remove(handoff)
        name, epoch = handoff.step, handoff.epoch
        self.see(self.log.began(name, epoch))
        if fails:
            kind = self.rng.choice((FailureType.PERMANENT,) * 3 + (FailureType.UNSAFE,))
            if kind is FailureType.UNSAFE:
                self.shut.add(name)
            event = StepFailed(
                run_id="r", step=name, epoch=epoch, failure_type=kind,
                error_class="No", message=f"card {SECRET} was refused",
            )  # fmt: skip
            self.see(self.log.put(event))
            return
        wrote = {"quote": "price", "pay": "receipt", "ask": "rated", "ship": "parcel"}[name]
        self.see(self.log.done(name, epoch, ops=[["set", [wrote], self.rng.randrange(9)]]))

    def inform(self) -> None:
        """A field moves, or comes, from outside."""
        field = self.rng.choice(("price", "rate", "order"))
        self.number += 1
        ops = pack([["set", [field], self.value()]])
        event = InformationSupplied(
            run_id="r", information_id=f"i{self.number}", ops=ops, origin="bank"
        )
        self.see(self.log.put(event))

    def value(self) -> object:
        """What somebody fills in: mostly a number."""
        return self.rng.randrange(100) if self.rng.random() < 0.8 else "many"

    def decide(self) -> None:
        """A decision: mostly on the newest package; often late, double, stale or forged."""
        newest = self.packages[-1]
        package = newest if self.rng.random() < 0.6 else self.rng.choice(self.packages)
        self.number += 1
        event = DecisionMade(
            run_id="r",
            decision_id=f"d{self.number}",
            escalation_id=package.escalation_id,
            decision=self.rng.choice(KINDS),
            decided_by=self.rng.choice(("ana", "ben", LIMITED)),
            reason="seen",
            step=package.step,
            ops=self.ops(package),
            package_digest=package.package_digest,
        )
        forged = self.rng.random() < 0.15
        if forged:
            other = self.rng.choice((b"0" * 32, self.packages[0].package_digest))
            event = msgspec.structs.replace(event, package_digest=other)
            forged = other != package.package_digest
        before = self.log.partition.run("r")
        out = self.log.put(event)
        self.judge(event, package, out, before, forged=forged)
        self.see(out)
        if self.rng.random() < 0.2:
            again = self.log.put(event)
            if self.log.outcomes == [Outcome.APPLIED]:
                raise BrokenPromiseError("a repeat of a decision was applied")
            self.see(again)

    def ops(self, package: Escalation) -> bytes:
        """Fields for supply, edit and skip, or none."""
        if self.rng.random() < 0.4:
            return b""
        names = [*package.missing_fields, *(line.field for line in package.fields)]
        wanted = [name for name in dict.fromkeys(names) if name != "card"]
        return pack([["set", [name], self.value()] for name in wanted])

    def judge(
        self,
        event: DecisionMade,
        package: Escalation,
        out: list[Output],
        before: object,
        *,
        forged: bool,
    ) -> None:
        """What may have come of a decision."""
        said = [t for t in transitions(out) if t.cause == "DecisionMade"]
        applied = any(t.outcome is Outcome.APPLIED for t in said)
        name = event.escalation_id
        if name in self.first:
            if applied:
                raise BrokenPromiseError(f"{name} was decided twice")
            may = event.decided_by != LIMITED or event.decision in ALLOWED
            expected = "already_decided" if may else "not_allowed"
            if not self.ended_now(said) and said[0].reason != expected:
                raise BrokenPromiseError(f"a second decision heard {said[0].reason}, not the first")
        if forged and applied:
            raise BrokenPromiseError("a decision with another package's digest was applied")
        if not applied:
            moved = any(t.reason == "package_moved" for t in said)
            if not moved and self.log.partition.run("r") != before:
                raise BrokenPromiseError("a refused decision changed the run")
            return
        if event.decided_by == LIMITED and event.decision not in ALLOWED:
            raise BrokenPromiseError(f"{LIMITED} may not {event.decision}")
        option = next(o for o in package.options if o.decision is event.decision)
        if option.why_not:
            raise BrokenPromiseError(f"{event.decision} was applied and not offered")
        if said[0].actor != event.decided_by or event.reason not in said[0].reason:
            raise BrokenPromiseError("who and why are not on record")
        self.first[name] = event
        self.shut.discard(package.step)
        if event.decision is DecisionType.APPROVE and package.step == "pay":
            self.approved = (package.plan_digest, package.values_digest)

    def ended_now(self, said: list[Transition]) -> bool:
        """Whether the run had ended: its stub keeps the last decisions only."""
        return bool(said) and said[0].reason == "run_ended"

    def see(self, out: list[Output]) -> None:
        """Checks what came out."""
        self.check_types()
        for package in escalations(out):
            if faults := lint(package):
                raise BrokenPromiseError(f"package: {faults}")
            if SECRET in str(package):
                raise BrokenPromiseError("a package holds a secret")
            if package.reminder > REMINDERS_MAX:
                raise BrokenPromiseError("reminded for ever")
            if package.asked != "notice":
                self.packages.append(package)
        for handoff in handoffs(out):
            if self.shut:
                raise BrokenPromiseError(f"{handoff.step} was given out after {self.shut}, unsafe")
            self.out = [each for each in self.out if each.step != handoff.step]
            self.out.append(handoff)
            if handoff.step == "pay":
                self.check_approved()
        for transition in transitions(out):
            if transition.run_state_after is RunState.EXPIRED:
                raise BrokenPromiseError("P6: waited until its time to live was over")
            if transition.reason == "nobody_answered":
                self.check_silence(transition.at_ms)
            self.ended = self.ended or transition.run_state_after in {
                RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.COMPENSATED,
            }  # fmt: skip

    def check_silence(self, at_ms: int) -> None:
        """Somebody's time to answer the newest package about a step, or the run, is over."""
        newest = {package.step: package for package in self.packages}
        waits = [p for p in newest.values() if p.escalation_id not in self.first]
        if all(package.answer_by_ms > at_ms for package in waits):
            raise BrokenPromiseError("nobody answered, and there was time to")

    def check_types(self) -> None:
        """What came from outside is what the plan says."""
        run = self.log.partition.run("r")
        if run is not None and run.context:
            rate = unpack_map(run.context).get("rate", 0)
            if not isinstance(rate, int):
                raise BrokenPromiseError(f"the rate is {rate!r}")

    def check_approved(self) -> None:
        """P7, by the digests of the package that was approved."""
        run = self.log.partition._runs.get("r")
        if self.approved is None:
            raise BrokenPromiseError("P7: a risky step was given out without an approval")
        if run is None or not hasattr(run, "context"):
            return
        now = run.context.values_digest(("price", "card"))
        if now != self.approved[1]:
            raise BrokenPromiseError("P7: a risky step was given out with other values")
