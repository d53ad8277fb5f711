"""What becomes of an event of a run that is live, has ended, was refused, or is not there yet."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.control import DecisionMade, ErasureRequested, RunControl, StallSuspected
from dalsegno.schemas.events import RunCancelled, RunEvent, RunStarted
from dalsegno.schemas.outputs import Outcome, RunState
from dalsegno.streams.core import tags
from dalsegno.streams.core.answering import answer_type, tell
from dalsegno.streams.core.capturing import Held
from dalsegno.streams.core.cold import Cold
from dalsegno.streams.core.erasing import ERASED, Erasing
from dalsegno.streams.core.moment import Moment, Ruling, duplicate, refused
from dalsegno.streams.core.names import DETAIL_CHARS_MAX, ID_CHARS_MAX, name_fault
from dalsegno.streams.core.on_record import OnRecord
from dalsegno.streams.core.record import Record, Unreadable
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import Run, Stub, StubHead, Waiting
from dalsegno.streams.core.sizes import raised
from dalsegno.streams.core.starting import begin, source_digest
from dalsegno.streams.core.stubs import (
    after_end,
    control_after_end,
    pack_waiting_record,
    room_to_wait,
    room_to_wait_for_run,
    unpack_event,
)
from dalsegno.streams.core.units import Units
from dalsegno.streams.core.warm import PASSES

_DEAD_LETTERED: Final = Outcome.DEAD_LETTERED
_QUARANTINED: Final = RunState.QUARANTINED
_BAD_ADDRESS: Final = refused(
    "bad_reply_to", f"an address for answers has at most {ID_CHARS_MAX} characters"
)


class Arrivals(OnRecord):
    """Finds the run of an event, or lets the event wait. Keeps the counts of outcomes.

    `counts` and `waiting` together are the records delivered, always (P1).
    """

    def __init__(self, now: Moment, runs: Runs, units: Units, erasing: Erasing, topic: str) -> None:
        super().__init__(now, erasing, topic)
        self._runs = runs
        self._units = units
        self.waiting = 0

    def run_event(self, record: Record, event: RunEvent) -> None:
        """Applies an event of a run that has just been read."""
        run_id = event.run_id
        held = self._runs.get(run_id)
        if len(event.reply_to) > ID_CHARS_MAX:
            if held is None and self._erasing.erased(run_id):
                self._erasing.late(event)
            self._turn_away(held, event, _BAD_ADDRESS)
        elif type(held) is Run and held.head.state is not _QUARANTINED:
            if type(event) is RunStarted:
                self._started_again(event, held.head.start_digest, held.head.state, held)
                return
            # As `_on_live`, without its calls: this is where nearly every record goes.
            ruling = self._units.event(held, event)
            if ruling.outcome is _DEAD_LETTERED:
                self.dead_letter(record, ruling.reason, ruling.detail, run_id)
            else:
                self.counts[ruling.outcome] += 1
        elif isinstance(held, Run):
            self._on_quarantined(held, record, event)
        elif isinstance(held, Cold):
            self._on_cold(held, record, event)
        elif held is None and self._erasing.erased(run_id):
            self._on_erased(event)
        elif type(event) is RunStarted:
            self._on_start(held, record, event)
        elif held is None:
            self._on_unknown(record, event)
        else:
            self._on_stub(held, record, event)

    def run_control(self, record: Record, event: RunControl) -> None:
        """Applies a control event about one run: it never waits, its writer knows the run."""
        held = self._runs.get(event.run_id)
        if held is None and self._erasing.erased(event.run_id):
            self._on_erased(event)
            return
        if isinstance(event, ErasureRequested):
            self._erase(held, record, event)
            return
        assert isinstance(event, StallSuspected | DecisionMade), "the others are applied elsewhere"
        if held is None:
            ruling = refused("unknown_run")
        elif isinstance(held, Cold):
            self._on_cold(held, record, event)
            return
        elif isinstance(held, Stub):
            ruling = control_after_end(held, event)
        elif held.head.state is RunState.QUARANTINED:
            if isinstance(event, DecisionMade):
                self._on_live(held, record, event)
                self._resume(held)
                return
            ruling = refused("quarantined")
        else:
            self._on_live(held, record, event)
            return
        self._turn_away(held, event, ruling)

    def _erase(self, held: Held | None, record: Record, event: ErasureRequested) -> None:
        """The run goes, whatever its state, and what waits for it is refused."""
        if fault := self._erasing.fault(event):
            self.counts[Outcome.REFUSED] += 1
            self.audit(event, refused("bad_erasure", fault), None, 0)
            return
        mark = len(self._now.outbox.items)
        waiting = None if held is None else held.waiting
        try:
            self._erasing.erase(held, event)
        except PASSES:
            raise
        # A unit's boundary, as in `Units`: what raises costs the record, the run stays as it was.
        except Exception as error:  # noqa: BLE001
            self._now.outbox.rollback(mark)
            self.dead_letter(record, "apply_raised", f"{error!r}", event.run_id)
            return
        self.counts[Outcome.APPLIED] += 1
        if waiting:
            self._turn_away_waiting(waiting, ERASED, None, 0)

    def erased(self, event: RunControl) -> bool:
        """Whether an event is about a run that was erased, and so was turned away."""
        late = self._erasing.erased(event.run_id)
        if late:
            self._on_erased(event)
        return late

    def _on_erased(self, event: RunEvent | RunControl) -> None:
        """Late: the run is gone for good. The same request again is a duplicate."""
        stone = self._erasing.stones.of(event.run_id)
        ruling = self._erasing.late(event)
        if isinstance(event, ErasureRequested) and stone is not None:
            ruling = duplicate()
        self.counts[ruling.outcome] += 1
        if ruling.outcome is Outcome.REFUSED:
            if isinstance(event, RunEvent):
                self._answer(event, ruling)
            self.audit(event, ruling, None, 0)

    def _turn_away(self, held: Held | None, event: RunEvent | RunControl, ruling: Ruling) -> None:
        self.counts[ruling.outcome] += 1
        if isinstance(held, Run):
            self._units.turn_away(held, event, ruling)
        elif held is not None:
            self.audit(event, ruling, held.head.state, held.head.run_version)

    def _resume(self, run: Run) -> None:
        """After a person's retry: what waited is applied in order, then attempts are given out."""
        if not _goes_on(run):
            return
        waiting, run.waiting = run.waiting, None
        if waiting:
            self._runs.changed(run, tags.ALL_WAITING)
            self.deliver(waiting)
        # An event that waited may have ended the run, or raised anew.
        if _goes_on(run):
            self._runs.grounded(run)
            self._units.resume(run)

    def _on_live(
        self, run: Run, record: Record, event: RunEvent | StallSuspected | DecisionMade
    ) -> None:
        ruling = self._units.event(run, event)
        if ruling.outcome is _DEAD_LETTERED:
            self.dead_letter(record, ruling.reason, ruling.detail, event.run_id)
        else:
            self.counts[ruling.outcome] += 1
            self.after(run)

    def after(self, run: Run) -> None:
        """What waited for a quarantined run that has ended now is refused."""
        if run.waiting and run.head.state in FINAL_RUNS:
            waiting, run.waiting = run.waiting, None
            self._turn_away_waiting(waiting, "run_ended", run.head.state, run.head.run_version)

    def _on_quarantined(self, run: Run, record: Record, event: RunEvent) -> None:
        if type(event) is RunStarted:
            self._started_again(event, run.head.start_digest, run.head.state, run)
        elif type(event) is RunCancelled:
            self._on_live(run, record, event)
        elif room_to_wait_for_run(run.waiting, record, self._now.policy):
            if run.waiting is None:
                run.waiting = []
            run.waiting.append(pack_waiting_record(record))
            self.waiting += 1
            self._runs.changed(run, tags.ALL_WAITING)
        else:
            self.dead_letter(record, "quarantined", "too much waits for this run", event.run_id)

    def _started_again(self, event: RunStarted, digest: bytes, state: RunState, held: Held) -> None:
        """The same start is a duplicate; another one under the same id is refused."""
        if digest == source_digest(event):
            ruling = duplicate()
        else:
            ruling = refused("different_start", "a run of this id began with other content")
        self.counts[ruling.outcome] += 1
        version = held.head.run_version
        context = b""
        if isinstance(held, Stub) and ruling.outcome is Outcome.DUPLICATE:
            context = held.head.context
        tell(
            self._now,
            event.reply_to,
            event.run_id,
            answer_type(ruling, None),
            kind="RunStarted",
            reason=ruling.reason,
            detail=ruling.detail,
            run_state=state,
            run_version=version,
            context=context,
        )
        if ruling.outcome is Outcome.REFUSED:
            self.audit(event, ruling, state, version)

    def _on_start(self, stub: Stub | None, record: Record, event: RunStarted) -> None:
        if stub is not None and stub.head.state is not None:
            self._started_again(event, stub.head.start_digest, stub.head.state, stub)
            return
        fault = "" if stub is not None else name_fault(event.run_id)
        ruled = refused("bad_run_id", fault) if fault else self._begin(stub, record, event)
        if ruled is None:
            return
        if not isinstance(ruled, Run):
            self._refuse_start(stub, event, ruled, keep=not fault)
            return
        self.counts[Outcome.APPLIED] += 1
        if stub is not None and stub.waiting:
            self.deliver(stub.waiting)

    def _begin(self, stub: Stub | None, record: Record, event: RunStarted) -> Run | Ruling | None:
        """The started run, or why it is refused; None when the fold raised."""
        mark = len(self._now.outbox.items)
        try:
            ruled = begin(self._now, event, _trace(record))
            if isinstance(ruled, Run):
                self._runs.add(ruled)
                self._units.start(ruled, event)
        except PASSES:
            raise
        # A unit's boundary, as in `Units`: a start that raises costs its own run.
        except Exception as error:  # noqa: BLE001
            self._now.outbox.rollback(mark)
            self._runs.abandon(event.run_id, stub)
            reason, detail = raised("RunStarted", error)
            self.dead_letter(record, reason, detail, event.run_id)
            return None
        return ruled

    def _refuse_start(
        self, stub: Stub | None, event: RunStarted, ruling: Ruling, *, keep: bool
    ) -> None:
        """A refused start leaves a stub that says why; what waited for it is refused too."""
        self.counts[Outcome.REFUSED] += 1
        self._answer(event, ruling)
        if not keep:
            return
        self.audit(event, ruling, None, 0)
        head = StubHead(
            until_ms=self._now.log_ms + self._now.policy.stub_keep_ms,
            refusal=ruling.reason,
            detail=ruling.detail[:DETAIL_CHARS_MAX],
            flow=event.flow[:ID_CHARS_MAX],
            flow_version=event.flow_version,
        )
        refused_stub = Stub(event.run_id, head)
        self._runs.add(refused_stub)
        if stub is not None and stub.waiting:
            waiting, stub.waiting = stub.waiting, None
            self._turn_away_waiting(waiting, "start_refused", None, 0)
            self._runs.changed(refused_stub, tags.ALL_WAITING)

    def _on_unknown(self, record: Record, event: RunEvent) -> None:
        """An event ahead of its run's start: other producers may be faster than the starter."""
        fault = name_fault(event.run_id)
        policy = self._now.policy
        if fault:
            self.counts[Outcome.REFUSED] += 1
            self._answer(event, refused("bad_run_id", fault))
        elif room_to_wait(None, record, policy):
            stub = Stub(event.run_id, StubHead(until_ms=self._now.log_ms + policy.early_wait_ms))
            stub.waiting = [pack_waiting_record(record)]
            self.waiting += 1
            self._runs.add(stub)
            self._runs.changed(stub, tags.ALL_WAITING)
        else:
            self.dead_letter(record, "early", "the policy lets nothing wait", event.run_id)

    def _on_stub(self, stub: Stub, record: Record, event: RunEvent) -> None:
        if stub.head.state is not None:
            self._on_ended(stub, record, event)
        elif stub.head.refusal:
            self.counts[Outcome.REFUSED] += 1
            self._answer(event, refused("start_refused", stub.head.detail))
            self._audit_stub(stub, event, refused("start_refused", stub.head.detail))
        elif room_to_wait(stub.waiting, record, self._now.policy):
            assert stub.waiting is not None, "an early stub is there for what waits"
            stub.waiting.append(pack_waiting_record(record))
            self.waiting += 1
            self._runs.changed(stub, tags.ALL_WAITING)
        else:
            self.dead_letter(record, "early", "too much waits for this run", event.run_id)

    def _on_ended(self, stub: Stub, record: Record, event: RunEvent) -> None:
        head, mark = stub.head, len(self._now.outbox.items)
        try:
            ruling, changed = after_end(self._now, stub, event)
            if ruling.outcome is not Outcome.DUPLICATE or ruling.answer:
                self._answer(event, ruling, head.state)
            if ruling.outcome is not Outcome.DUPLICATE:
                self._audit_stub(stub, event, ruling)
        except PASSES:
            raise
        # A unit's boundary, as in `Units`: what raises costs the record, the stub stays as it was.
        except Exception as error:  # noqa: BLE001
            stub.head = head
            self._now.outbox.rollback(mark)
            self.dead_letter(record, "apply_raised", f"{error!r}", event.run_id)
            return
        self.counts[ruling.outcome] += 1
        if changed:
            self._runs.changed(stub)

    def _on_cold(self, cold: Cold, record: Record, event: RunEvent | RunControl) -> None:
        """The run is in the archive: it is to come back, and what came for it waits."""
        if type(event) is RunStarted:
            self._started_again(event, cold.head.start_digest, cold.head.state, cold)
            return
        self._runs.want(cold, self._now.log_ms, type(event).__name__)
        if room_to_wait_for_run(cold.waiting, record, self._now.policy):
            cold.waiting = [*(cold.waiting or ()), pack_waiting_record(record)]
            self.waiting += 1
            self._runs.changed(cold, tags.ALL_WAITING)
        else:
            detail = "too much waits for this run until it is back from the archive"
            self.dead_letter(record, "archived", detail, event.run_id)

    def deliver(self, waiting: list[Waiting]) -> None:
        """Applies what waited, in order, at the log time of what it waited for."""
        now = self._now
        offset, at_ms = now.offset, now.at_ms
        for held in waiting:
            self.waiting -= 1
            now.offset, now.at_ms = held.offset, held.at_ms
            event = unpack_event(held)
            record = Record(held.offset, held.at_ms, held.key, held.value, event, held.headers)
            if isinstance(event, RunControl):
                self.run_control(record, event)
            else:
                self.run_event(record, event)
        now.offset, now.at_ms = offset, at_ms

    def _turn_away_waiting(
        self, waiting: list[Waiting], reason: str, state: RunState | None, version: int
    ) -> None:
        offset = self._now.offset
        for held in waiting:
            self.waiting -= 1
            self.counts[Outcome.REFUSED] += 1
            event, ruling = unpack_event(held), refused(reason)
            self._now.offset = held.offset
            if isinstance(event, RunEvent):
                self._answer(event, ruling)
            self.audit(event, ruling, state, version)
        self._now.offset = offset

    def stub_due(self, stub: Stub) -> None:
        """A stub goes; what still waits in it are dead letters."""
        late = "its run has not started in time"
        for held in stub.waiting or ():
            self.waiting -= 1
            # Not unpacked: a timer of what is no run must not be able to raise.
            event = Unreadable("early", late, stub.id, held.kind)
            record = Record(held.offset, held.at_ms, held.key, held.value, event, held.headers)
            self.dead_letter(record, "early", late, stub.id)
        self._runs.remove(stub)


def _goes_on(run: Run) -> bool:
    return run.head.state not in FINAL_RUNS and run.head.state is not RunState.QUARANTINED


def _trace(record: Record) -> str:
    for name, value in record.headers:
        if name == "traceparent" and len(value) <= ID_CHARS_MAX:
            return value.decode("ascii", "replace")
    return ""
