"""What is said of an event that changes no run: its answer, its transition, a dead letter."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.control import RunControl, StallSuspected
from dalsegno.schemas.events import AttemptEvent, RunEvent
from dalsegno.schemas.outputs import DeadLetter, Outcome, RunState, Transition
from dalsegno.streams.core.actions import Audit, PutAside
from dalsegno.streams.core.answering import answer_type, tell
from dalsegno.streams.core.bounds import fitting
from dalsegno.streams.core.erasing import Erasing
from dalsegno.streams.core.moment import Moment, Ruling
from dalsegno.streams.core.names import DETAIL_CHARS_MAX, ID_CHARS_MAX
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.runstate import Stub

_TRANSITIONS: Final = "transitions"
_DEAD_LETTERS: Final = "dead-letters"


class OnRecord:
    """Keeps the counts of outcomes, and says what became of events that no run has taken."""

    def __init__(self, now: Moment, erasing: Erasing, topic: str) -> None:
        self._now = now
        self._erasing = erasing
        self._topic = topic
        self.counts: dict[Outcome, int] = dict.fromkeys(Outcome, 0)

    def dead_letter(self, record: Record, reason: str, detail: str, run_id: str = "") -> None:
        """Puts a record aside with its bytes, and counts it."""
        self.counts[Outcome.DEAD_LETTERED] += 1
        event = record.event
        letter = DeadLetter(
            topic=self._topic,
            partition=self._now.partition,
            offset=record.offset,
            at_ms=record.at_ms,
            reason=reason,
            # The record itself may be as large as its topic takes; what is added is little.
            detail=detail[:DETAIL_CHARS_MAX],
            run_id=run_id[:ID_CHARS_MAX],
            kind=(getattr(event, "kind", "") or type(event).__name__)[:ID_CHARS_MAX],
        )
        self._now.outbox.put(
            _DEAD_LETTERS, PutAside(letter, record.key, record.value, record.headers)
        )

    def _answer(self, event: RunEvent, ruling: Ruling, state: RunState | None = None) -> None:
        step, epoch = "", 0
        if isinstance(event, AttemptEvent):
            step, epoch = event.step, event.epoch
        tell(
            self._now,
            event.reply_to,
            event.run_id,
            answer_type(ruling, state),
            step=step,
            epoch=epoch,
            kind=type(event).__name__,
            reason="" if ruling.answer else ruling.reason,
            detail=ruling.detail,
            run_state=None if ruling.answer else state,
        )

    def _audit_stub(self, stub: Stub, event: RunEvent | RunControl, ruling: Ruling) -> None:
        self.audit(event, ruling, stub.head.state, stub.head.run_version)

    def audit(
        self, event: RunEvent | RunControl, ruling: Ruling, state: RunState | None, version: int
    ) -> None:
        """Puts on record what became of an event that changed no run."""
        step, epoch = "", 0
        if isinstance(event, AttemptEvent | StallSuspected):
            step, epoch = event.step, event.epoch
        transition = Transition(
            run_id=event.run_id,
            cause=type(event).__name__,
            cause_offset=self._now.offset,
            at_ms=self._now.log_ms,
            outcome=ruling.outcome,
            reason=ruling.reason,
            run_version_before=version,
            run_version_after=version,
            run_state_before=state,
            run_state_after=state,
            step=step,
            epoch=epoch,
            actor=event.source,
            detail=ruling.detail,
        )
        self._now.outbox.put(_TRANSITIONS, Audit(fitting(self._erasing.public(transition))))
