"""A small fold with the interface of the real one: a counter and a running hash per run.

Each run event gives a transition; each even one a handoff as well, each fifth an answer. A
`RiskFlagged` with the flag `raise` makes `apply` raise, `slow` takes its reason as seconds, and
`huge` puts out a transition that no topic takes. So the engine is tested without the core's rules.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable

import msgspec

from dalsegno.schemas.control import ClockTick, Policy
from dalsegno.schemas.events import RiskFlagged, RunEvent
from dalsegno.schemas.outputs import (
    Answer,
    AnswerType,
    DeadLetter,
    Handoff,
    Outcome,
    RunState,
    Transition,
)
from dalsegno.streams.core.actions import Action, Audit, Dispatch, Output, PutAside, Reply
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.near_limits import NearLimit
from dalsegno.streams.core.record import Record, Unreadable
from dalsegno.streams.core.sequence import Sequence

HEAD = b"\x00partition"


class Head(msgspec.Struct, array_like=True):
    """The partition's own part."""

    position: int = 0
    log_ms: int = 0
    counts: dict[str, int] = {}
    sent: dict[str, int] = {}


class TinyRun(msgspec.Struct, array_like=True, frozen=True):
    """A run, and its view."""

    run_id: str
    count: int = 0
    digest: int = 0
    flow: str = "tiny"
    state: RunState = RunState.RUNNING


class TinyFold:
    """See the module's text."""

    policy = Policy()
    live_ms = 0
    waiting = 0

    def __init__(self, number: int, *, mac_keys: tuple[str, ...] = (), topic: str = "") -> None:
        self.number = number
        self.head = Head()
        self.runs: dict[bytes, bytes | TinyRun] = {}
        self.dirty: set[bytes] = set()
        self.deadline_ms: int | None = None

    @classmethod
    def restore(
        cls, number: int, parts: Iterable[tuple[bytes, bytes]], *, topic: str = ""
    ) -> TinyFold:
        fold = cls(number)
        fold.runs = dict(parts)
        fold.head = msgspec.msgpack.decode(fold.runs.pop(HEAD), type=Head)
        return fold

    @property
    def position(self) -> int:
        return self.head.position

    @position.setter
    def position(self, value: int) -> None:
        self.head.position = value

    @property
    def log_ms(self) -> int:
        return self.head.log_ms

    @property
    def next_report_ms(self) -> int | None:
        return None

    @property
    def next_log_deadline_ms(self) -> int | None:
        return self.deadline_ms

    @property
    def needs_tick(self) -> bool:
        return False

    @property
    def counts(self) -> dict[Outcome, int]:
        return {Outcome(name): count for name, count in self.head.counts.items()}

    @property
    def open_runs(self) -> int:
        return len(self.runs)

    def drain_in_flight(self) -> list[tuple[tuple[str, str], Attempt | None]]:
        return []

    def run_ids(self) -> list[str]:
        return [key[1:].decode() for key in self.runs]

    def run(self, run_id: str) -> TinyRun | None:
        return self._load(b"r" + run_id.encode())

    def is_open(self, run_id: str) -> bool:
        return self.run(run_id) is not None

    def _load(self, key: bytes) -> TinyRun | None:
        run = self.runs.get(key)
        return msgspec.msgpack.decode(run, type=TinyRun) if isinstance(run, bytes) else run

    def near_limits(self, run_id: str) -> tuple[NearLimit, ...]:
        return ()

    def apply(self, record: Record) -> list[Output]:
        outcome, actions = self._decide(record)
        head = self.head
        head.counts[outcome] = head.counts.get(outcome, 0) + 1
        head.position = record.offset + 1
        head.log_ms = max(head.log_ms, record.at_ms)
        return [self._output(record, i, action) for i, action in enumerate(actions)]

    def _output(self, record: Record, index: int, action: Action) -> Output:
        count = self.head.sent[action.channel] = self.head.sent.get(action.channel, 0) + 1
        return Output(Sequence(record.offset, index, count), action)

    def _decide(self, record: Record) -> tuple[Outcome, list[Action]]:
        event = record.event
        if isinstance(event, Unreadable):
            letter = DeadLetter(
                topic="", partition=self.number, offset=record.offset, at_ms=record.at_ms,
                reason=event.reason, detail=event.detail,
            )  # fmt: skip
            put = PutAside(letter, record.key, record.value, record.headers)
            return Outcome.DEAD_LETTERED, [put]
        if isinstance(event, ClockTick) or not isinstance(event, RunEvent):
            return Outcome.APPLIED, []
        if isinstance(event, RiskFlagged):
            if event.flag == "raise":
                raise RuntimeError("as the test asked")
            if event.flag == "slow":
                until = time.monotonic() + float(event.reason)
                while time.monotonic() < until:
                    pass
        return Outcome.APPLIED, self._run_event(record, event)

    def _run_event(self, record: Record, event: RunEvent) -> list[Action]:
        key = b"r" + event.run_id.encode()
        run = self._load(key) or TinyRun(event.run_id)
        run = TinyRun(event.run_id, run.count + 1, zlib.crc32(record.value, run.digest))
        self.runs[key] = run
        self.dirty.add(key)
        huge = isinstance(event, RiskFlagged) and event.flag == "huge"
        actions: list[Action] = [Audit(_transition(record, run, 2_000_000 if huge else 0))]
        if run.count % 2 == 0:
            actions.append(Dispatch("default", _handoff(record, run)))
        if run.count % 5 == 0 and event.reply_to:
            answer = Answer(reply_to=event.reply_to, run_id=run.run_id, answer=AnswerType.ACCEPTED)
            actions.append(Reply(answer))
        return actions

    def capture(self) -> list[tuple[bytes, bytes | None]]:
        encode = msgspec.msgpack.encode
        parts = [(key, encode(self.runs[key])) for key in sorted(self.dirty)]
        self.dirty.clear()
        return [*parts, (HEAD, encode(self.head))]

    def parts(self) -> dict[bytes, bytes]:
        encode = msgspec.msgpack.encode
        runs = {k: run if isinstance(run, bytes) else encode(run) for k, run in self.runs.items()}
        return {**runs, HEAD: encode(self.head)}


def _transition(record: Record, run: TinyRun, diff_bytes: int) -> Transition:
    return Transition(
        run_id=run.run_id, cause="tiny", cause_offset=record.offset, at_ms=record.at_ms,
        outcome=Outcome.APPLIED, reason="", run_version_before=run.count - 1,
        run_version_after=run.count, run_state_before=RunState.RUNNING,
        run_state_after=RunState.RUNNING, detail=str(run.digest), diff=b"x" * diff_bytes,
    )  # fmt: skip


def _handoff(record: Record, run: TinyRun) -> Handoff:
    return Handoff(
        run_id=run.run_id, flow="tiny", flow_version=1, step="step", epoch=run.count, goal="",
        inputs=b"\x80", run_version=run.count, recovery_key="k", dispatched_at_ms=record.at_ms,
        start_by_ms=record.at_ms + 1_000, timeout_ms=1_000, heartbeat_ms=1_000,
    )  # fmt: skip
