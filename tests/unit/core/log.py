"""A log of one partition for tests: appends events, moves a clock, keeps what came out."""

from __future__ import annotations

import msgspec

from dalsegno.schemas.blob import encode_hook
from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import ClockTick, ControlEvent, Policy, PolicySet
from dalsegno.schemas.events import RunEvent, RunStarted, StepCompleted, StepStarted
from dalsegno.schemas.outputs import Answer, Escalation, Handoff, Outcome, Transition
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.streams.core.actions import Audit, Dispatch, Escalate, Output, PutAside, Reply
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.people.lint import lint
from dalsegno.streams.core.query import RunView, StepView
from dalsegno.streams.core.record import Record, Unreadable

START_MS = 1_700_000_000_000
# What every topic takes as one record, at least.
OUTPUT_BYTES_MAX = 1_048_588
_FRAMING_BYTES = 512

pack = msgspec.msgpack.Encoder(enc_hook=encode_hook).encode


def step(name: str, *, queue: str = "default", **fields: object) -> StepPlan:
    """A step of the default queue."""
    return msgspec.convert({"name": name, "queue": queue, **fields}, StepPlan)


def plan_of(*steps: StepPlan, **fields: object) -> Plan:
    """A plan of these steps."""
    return msgspec.structs.replace(Plan(steps=steps), **fields)


def chain(count: int, **fields: object) -> Plan:
    """s0 > s1 > ..., each writing its own field."""
    return plan_of(
        *(
            step(
                f"s{i}", needs=(f"s{i - 1}",) if i else (), writes=(f"f{i}",), timeout_ms=10_000,
                **fields,
            )
            for i in range(count)
        )
    )  # fmt: skip


def body(output: Output) -> object:
    """The record that an output carries."""
    action = output.action
    if isinstance(action, Audit):
        return action.transition
    if isinstance(action, Dispatch):
        return action.handoff
    if isinstance(action, Reply):
        return action.answer
    if isinstance(action, Escalate):
        return action.escalation
    return action.letter if isinstance(action, PutAside) else action.report


class Log:
    """Feeds a partition; after each record the books must balance."""

    def __init__(self, partition: Partition | None = None) -> None:
        self.partition = partition or Partition(0)
        self.now_ms = START_MS
        self.tick_number = 0
        self.records: list[Record] = []
        self.outputs: list[Output] = []
        self.outcomes: list[Outcome] = []

    def put(
        self,
        event: RunEvent | ControlEvent | Unreadable,
        *,
        at_ms: int | None = None,
        value: bytes = b"",
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> list[Output]:
        """Appends an event and applies it."""
        run_id = getattr(event, "run_id", "")
        record = Record(
            offset=self.partition.position,
            at_ms=self.now_ms if at_ms is None else at_ms,
            key=run_id.encode(),
            value=value or b"v%d" % self.partition.position,
            event=event,
            headers=headers,
        )
        self.records.append(record)
        before = self.partition.counts
        out = self.partition.apply(record)
        self.outputs += out
        for output in out:
            # Strict: what the fold puts out must have a place on the wire.
            size = len(encode(body(output))) + len(run_id.encode()) + _FRAMING_BYTES
            assert size <= OUTPUT_BYTES_MAX, f"{output.action.channel}: {size} bytes"
            if isinstance(output.action, Escalate):
                assert lint(output.action.escalation) == []
        after = self.partition.counts
        self.outcomes = [name for name in after for _ in range(after[name] - before[name])]
        assert self.partition.delivered == len(self.records), "P1: every record has one outcome"
        return out

    def tick(self, seconds: int = 1) -> list[Output]:
        """Lets time pass, a tick each second."""
        out: list[Output] = []
        for _ in range(seconds):
            self.now_ms += 1_000
            self.tick_number += 1
            out += self.put(ClockTick(partition=self.partition.number, number=self.tick_number))
        return out

    def policy(self, **fields: object) -> None:
        """Sets a policy that differs from the built-in one in these fields."""
        policy = msgspec.structs.replace(Policy(), **fields)
        self.put(
            PolicySet(
                partition=self.partition.number, number=self.partition.position, policy=policy
            )
        )

    def start(
        self,
        plan: Plan,
        run_id: str = "r",
        context: dict[str, object] | None = None,
        **fields: object,
    ) -> list[Output]:
        """Starts a run."""
        return self.put(
            msgspec.structs.replace(
                RunStarted(
                    run_id=run_id,
                    flow="flow",
                    flow_version=1,
                    plan=plan,
                    context=pack(context or {}),
                ),
                **fields,
            )
        )

    def began(self, name: str, epoch: int = 1, run_id: str = "r", **fields: object) -> list[Output]:
        """A worker starts an attempt."""
        event = StepStarted(run_id=run_id, step=name, epoch=epoch, worker="w", incarnation=1)
        return self.put(msgspec.structs.replace(event, **fields))

    def done(
        self,
        name: str,
        epoch: int = 1,
        run_id: str = "r",
        ops: object = None,
        value: bytes = b"",
        **fields: object,
    ) -> list[Output]:
        """An attempt completes; by default it writes `f<n>` for a step `s<n>`."""
        if ops is None:
            ops = [["set", ["f" + name[1:]], name]]
        event = StepCompleted(run_id=run_id, step=name, epoch=epoch, ops=pack(ops))
        return self.put(msgspec.structs.replace(event, **fields), value=value)


def handoffs(outputs: list[Output]) -> list[Handoff]:
    """The handoffs among outputs."""
    return [o.action.handoff for o in outputs if isinstance(o.action, Dispatch)]


def answers(outputs: list[Output]) -> list[Answer]:
    """The answers among outputs."""
    return [o.action.answer for o in outputs if isinstance(o.action, Reply)]


def transitions(outputs: list[Output]) -> list[Transition]:
    """The transitions among outputs."""
    return [o.action.transition for o in outputs if isinstance(o.action, Audit)]


def escalations(outputs: list[Output]) -> list[Escalation]:
    """The escalations among outputs."""
    return [o.action.escalation for o in outputs if isinstance(o.action, Escalate)]


def dead_letters(outputs: list[Output]) -> list[PutAside]:
    """The dead letters among outputs."""
    return [o.action for o in outputs if isinstance(o.action, PutAside)]


def view(log: Log, run_id: str = "r") -> RunView:
    """The run as it is now."""
    found = log.partition.run(run_id)
    assert found is not None
    return found


def row(log: Log, name: str, run_id: str = "r") -> StepView:
    """A step as it is now."""
    return next(s for s in view(log, run_id).steps if s.step == name)


def assert_restores(log: Log) -> None:
    """What a restore gives is the same state, also once every run has been read back."""
    parts = log.partition.parts()
    again = Partition.restore(log.partition.number, parts.items())
    assert again.parts() == parts
    for run_id in list(again.run_ids()):
        again.run(run_id)
    assert again.parts() == parts
    assert again.next_log_deadline_ms == log.partition.next_log_deadline_ms
    assert again.next_live_deadline_ms == log.partition.next_live_deadline_ms
    assert again.in_flight == log.partition.in_flight
