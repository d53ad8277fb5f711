"""A run is erased, whatever its state: it leaves the state whole, and a tombstone stays."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.control import ErasureRequested, RunControl
from dalsegno.schemas.events import RunEvent
from dalsegno.schemas.outputs import AnswerType, RunState, Transition
from dalsegno.streams.core.actions import Audit
from dalsegno.streams.core.answering import tell
from dalsegno.streams.core.bounds import fitting
from dalsegno.streams.core.capturing import Held
from dalsegno.streams.core.cold import Cold
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.ending import stop_attempts
from dalsegno.streams.core.moment import ACCEPTED, Moment, Ruling, refused
from dalsegno.streams.core.names import DETAIL_CHARS_MAX, ID_CHARS_MAX
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import FLYING, Run, Stub, StubHead
from dalsegno.streams.core.tombstones import Tombstone, Tombstones, digest_of_id, erased_name

ERASED: Final = "erased"
_DETAIL: Final = "the run was erased: its id cannot be used again"


class Erasing:
    """Takes runs out of the state of a partition."""

    def __init__(self, now: Moment, runs: Runs, stones: Tombstones) -> None:
        self._now = now
        self._runs = runs
        self.stones = stones

    def erased(self, run_id: str) -> bool:
        """Whether the run was erased."""
        return self.stones.of(run_id) is not None

    def fault(self, event: ErasureRequested) -> str:
        """Why the request cannot be taken, or an empty text."""
        for name in ("erasure_id", "requested_by"):
            if not 0 < len(getattr(event, name)) <= ID_CHARS_MAX:
                return f"{name}: 1 to {ID_CHARS_MAX} characters"
        if not 0 < len(event.reason) <= DETAIL_CHARS_MAX:
            return f"reason: 1 to {DETAIL_CHARS_MAX} characters"
        return ""

    def erase(self, held: Held | None, event: ErasureRequested) -> None:
        """Removes the run, stub or waiting events. What waited is for the caller to turn away.

        Workers and the starter are told. What can raise comes first: then nothing has changed.
        """
        now = self._now
        live = isinstance(held, Run | Cold)
        draft = Draft(held, now) if isinstance(held, Run) else None
        before = None if held is None else held.head.state
        was = _state_of(held)
        after = RunState.CANCELLED if live else before
        if draft is not None:
            self._tell(draft)
        elif isinstance(held, Cold):
            self._told(held.head.reply_to, held.id, held.head.run_version)
        self._record(event, before, after)
        if draft is not None:
            self._end(draft)
        elif held is not None:
            assert not isinstance(held, Run), "a run goes by a draft"
            self._runs.remove(held)
        self._runs.versions.forget(event.run_id)
        self.stones.put(
            digest_of_id(event.run_id),
            Tombstone(
                erasure_id=event.erasure_id,
                requested_by=event.requested_by,
                reason=event.reason,
                offset=now.offset,
                erased_ms=now.log_ms,
                last_ms=now.log_ms,
                was=was,
            ),
        )

    def _tell(self, draft: Draft) -> None:
        head, run = draft.head, draft.run
        before = head.state
        head.state = RunState.CANCELLED
        draft.reason = ERASED
        if head.tally[FLYING] and before is not RunState.QUARANTINED:
            stop_attempts(draft, AnswerType.CANCELLED)
        self._told(head.reply_to, run.id, head.run_version)

    def _told(self, reply_to: str, run_id: str, version: int) -> None:
        """Who started it hears that it is over."""
        tell(
            self._now,
            reply_to,
            run_id,
            AnswerType.ENDED,
            kind="RunStarted",
            reason=ERASED,
            run_state=RunState.CANCELLED,
            run_version=version + 1,
        )

    def _end(self, draft: Draft) -> None:
        """The way out that every run goes, and its stub with it."""
        run = draft.run
        self._now.flying += self._runs.adopt(draft)
        stub = Stub(run.id, StubHead(until_ms=0, plan_digest=run.entry.plan.digest))
        stub.kept = run.kept
        self._runs.end(run, stub)
        self._runs.remove(stub)

    def _record(
        self, event: ErasureRequested, before: RunState | None, after: RunState | None
    ) -> None:
        transition = Transition(
            run_id=erased_name(event.run_id),
            cause=type(event).__name__,
            cause_offset=self._now.offset,
            at_ms=self._now.log_ms,
            outcome=ACCEPTED.outcome,
            reason=ERASED,
            run_version_before=0,
            run_version_after=0,
            run_state_before=before,
            run_state_after=after,
            actor=event.requested_by,
            detail=event.reason,
        )
        self._now.outbox.put("transitions", Audit(fitting(transition)))

    def late(self, event: RunEvent | RunControl) -> Ruling:
        """A record about a run that was erased: it changes nothing, and is counted."""
        self.stones.late(digest_of_id(event.run_id), self._now.log_ms)
        return refused(ERASED, _DETAIL)

    def public(self, transition: Transition) -> Transition:
        """A transition as it may stand on record: of an erased run it names neither run, step nor
        sender.
        """
        if not self.erased(transition.run_id):
            return transition
        return msgspec.structs.replace(
            transition,
            run_id=erased_name(transition.run_id),
            step="",
            actor="",
            detail="",
        )


def _state_of(held: Held | None) -> str:
    if held is None:
        return ""
    state = held.head.state
    return str(state) if state is not None else "not_started"
