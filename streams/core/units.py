"""Units of work: an event or a timer on one run, adopted whole, or its run is quarantined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dalsegno.schemas.control import DecisionMade, RunControl, StallSuspected
from dalsegno.schemas.events import RunCancelled, RunEvent, RunStarted
from dalsegno.schemas.outputs import AnswerType, Outcome, RunState, Transition
from dalsegno.streams.core.actions import Audit
from dalsegno.streams.core.answering import answer_type, tell
from dalsegno.streams.core.bounds import CHANGES_SURE, WORDS_CHARS_MAX, fitting
from dalsegno.streams.core.deadlines import (
    first_live,
    first_log,
    rebuild,
)
from dalsegno.streams.core.dispatch import dispatch_ready, give_held, settle
from dalsegno.streams.core.draft import Draft, IllegalMove
from dalsegno.streams.core.ending import end_run, stop_attempts
from dalsegno.streams.core.escalating import put_aside, recheck_gate
from dalsegno.streams.core.fired import Fired
from dalsegno.streams.core.flags import raise_flags
from dalsegno.streams.core.handlers import KINDS, actor_of, request_id, step_and_epoch
from dalsegno.streams.core.moment import ACCEPTED, Moment, Ruling, duplicate, refused
from dalsegno.streams.core.names import DETAIL_CHARS_MAX, ID_CHARS_MAX
from dalsegno.streams.core.people.approvals import recheck_approvals
from dalsegno.streams.core.people.resuming import give_again
from dalsegno.streams.core.recovery.suffering import account
from dalsegno.streams.core.run_table import FINAL_RUNS, RUN_MOVES, RunInput
from dalsegno.streams.core.runs import IDS_EVER_MAX, Runs
from dalsegno.streams.core.runstate import Run, RunHead, Stub
from dalsegno.streams.core.sizes import check_sizes, raised
from dalsegno.streams.core.step_table import PENDING, READY
from dalsegno.streams.core.stepping import fire as _fire
from dalsegno.streams.core.warm import PASSES

_TRANSITIONS: Final = "transitions"
# To look a member of an enum up in its class takes six times as long as a global.
_APPLIED: Final = Outcome.APPLIED
_RAISED: Final = str(RunInput.RAISED)
_TIMER: Final = Ruling(_APPLIED)


class Units:
    """Runs one unit at a time. Whatever raises leaves the run as it was, quarantined."""

    def __init__(self, now: Moment, runs: Runs) -> None:
        self._now = now
        self._runs = runs

    def start(self, run: Run, event: RunStarted) -> None:
        """The first unit of a run that `begin` has made: its roots become ready."""
        draft = Draft(run, self._now)
        draft.facts = True
        raise_flags(draft, event.risk_flags)
        for place in draft.plan.roots:
            row = draft.row(place)
            if row.state is PENDING:
                draft.move(place, row, READY)
        dispatch_ready(draft)
        settle(draft)
        self._answer(run, event, ACCEPTED, "RunStarted")
        self._record(draft, "RunStarted", ACCEPTED, event.source, "", 0)

    def event(self, run: Run, event: RunEvent | StallSuspected | DecisionMade) -> Ruling:
        """Applies an event to a live run.

        Where the fold raises, or an output is too large, the record is dead-lettered by the ruling,
        and the run quarantined as it was before.
        """
        kind = KINDS[type(event)]
        draft = Draft(run, self._now)
        try:
            ruling = self._seen(draft, event) if kind.one_shot else None
            if ruling is None:
                ruling = kind.apply(draft, event)
            applied = ruling.outcome is _APPLIED
            if applied or ruling.keeps:
                # A late report can be all it takes for a compensation to go.
                if applied or draft.ready:
                    if draft.head.people is not None:
                        recheck_approvals(draft)
                    if draft.head.gate:
                        recheck_gate(draft)
                    dispatch_ready(draft)
                    settle(draft)
                if ruling.answer or ruling.failed or not applied:
                    self._answer(run, event, ruling, kind.name)
                if draft.seen and ruling.outcome is Outcome.REFUSED:
                    draft.refusal = (ruling.reason, ruling.detail[:DETAIL_CHARS_MAX])
                if kind.of_step:
                    step, epoch, actor = event.step, event.epoch, event.source  # type: ignore[union-attr]
                else:
                    step, epoch, actor = *step_and_epoch(event), actor_of(event)
                self._record(draft, kind.name, ruling, actor, step, epoch)
            else:
                draft.discard()
                self._now.outbox.rollback(draft.mark)
                if draft.seen and ruling.outcome is Outcome.REFUSED:
                    ruling = self._refuse_for_good(run, draft.seen, ruling)
                self.turn_away(run, event, ruling)
        except PASSES:
            raise
        # The task boundary of a unit (P12): what raises costs its run, and nothing else.
        except Exception as error:  # noqa: BLE001
            return self._raised(draft, kind.name, error)
        return ruling

    def _seen(self, draft: Draft, event: RunEvent | StallSuspected | DecisionMade) -> Ruling | None:
        name = request_id(event)
        kind, _, given = name.partition(":")
        if not 0 < len(given) <= ID_CHARS_MAX:
            return refused("bad_id", f"the id of a {kind} has 1 to {ID_CHARS_MAX} characters")
        seen = draft.run.seen
        if seen is not None:
            if name in seen:
                said = seen[name]
                if said is None:
                    return duplicate(answer=True)
                return Ruling(Outcome.DUPLICATE, *said, answer=True, failed=True)
            if draft.head.seen_from + len(seen) >= IDS_EVER_MAX and type(event) is not RunCancelled:
                return refused("too_many_requests", f"{IDS_EVER_MAX} in this run")
        draft.seen = name
        return None

    def _refuse_for_good(self, run: Run, request: str, ruling: Ruling) -> Ruling:
        """Remembers a refusal, with words that the state can keep: its sender was told so."""
        kept = refused(ruling.reason, ruling.detail[:DETAIL_CHARS_MAX])
        self._runs.remember(run, request, (kept.reason, kept.detail))
        return kept

    def timer(self, run: Run, *, live: bool) -> None:
        """Fires the run's first deadline on one clock."""
        place = (first_live(run) if live else first_log(run))[1]
        self._without_event(run, lambda draft: _fire(draft, place))

    def release(self, run: Run, place: int, line: str) -> None:
        """It is the turn of a held step in its line."""
        step = run.entry.steps[place].name
        epoch = run.rows[place].epoch

        def given(draft: Draft) -> Fired:
            draft.passes = line
            give_held(draft, place)
            return Fired("turn", step, epoch)

        self._without_event(run, given)

    def resume(self, run: Run) -> None:
        """A run that was put aside goes on: attempts that were told to stop are given out again."""
        self._without_event(run, give_again)

    def _without_event(self, run: Run, change: Callable[[Draft], Fired]) -> None:
        draft = Draft(run, self._now)
        try:
            fired = change(draft)
            if fired.name:
                dispatch_ready(draft)
                settle(draft)
                cause = "timer:" + fired.name
                self._record(draft, cause, _TIMER, "", fired.step, fired.epoch)
            else:
                self._now.flying += self._runs.adopt(draft)
        except PASSES:
            raise
        # As for events: a timer is a unit of its own.
        except Exception as error:  # noqa: BLE001
            self._raised(draft, "timer", error)

    def _record(  # noqa: PLR0917 - the hottest call of all, and keywords cost
        self, draft: Draft, cause: str, ruling: Ruling, actor: str, step: str, epoch: int
    ) -> None:
        """Ends the run if its state is final, puts the transition on record, adopts."""
        now, head, run = self._now, draft.head, draft.run
        before = run.head
        stub: Stub | None = None
        if head.state is not before.state:
            if head.state not in RUN_MOVES[before.state]:
                raise IllegalMove(f"run {run.id!r} from {before.state} to {head.state}")
            if head.state in FINAL_RUNS:
                stub = end_run(draft, step=step, epoch=epoch)
        told = account(draft) if head.damage is not None else ""
        if draft.facts:
            head.run_version += 1
        log_ms = head.updated_ms = now.clock.log_ms
        diff = b""
        first = before.run_version == 0
        if first:
            diff = run.context.first_diff(draft.plan.secrets)
        elif draft.change is not None:
            diff = draft.change.diff(draft.plan.secrets)
        changes = draft.changes()
        reason, detail = ruling.reason or draft.reason, ruling.detail or told
        # By position, in the order of the class: see there.
        transition = Transition(
            run.id,
            cause,
            now.offset,
            log_ms,
            ruling.outcome,
            reason,
            before.run_version,
            head.run_version,
            None if first else before.state,
            head.state,
            changes,
            step,
            epoch,
            actor,
            detail,
            diff,
        )
        if (
            len(changes) > CHANGES_SURE
            or len(actor) + len(step) + len(reason) + len(detail) > WORDS_CHARS_MAX
        ):
            transition = fitting(transition)
        now.outbox.put(_TRANSITIONS, Audit(transition))
        check_sizes(now.outbox.items, draft.mark, now.policy)
        now.flying += self._runs.adopt(draft)
        if stub is not None:
            self._runs.end(run, stub)

    def turn_away(self, run: Run, event: RunEvent | RunControl, ruling: Ruling) -> None:
        """An event that changes nothing: answered if it is no plain repeat, and on the record."""
        cause = type(event).__name__
        head = run.head
        if ruling.outcome is not Outcome.DUPLICATE or ruling.answer:
            self._answer(run, event, ruling, cause)
        if ruling.outcome is Outcome.DUPLICATE:
            return
        step, epoch = step_and_epoch(event)
        transition = Transition(
            run_id=run.id,
            cause=cause,
            cause_offset=self._now.offset,
            at_ms=self._now.log_ms,
            outcome=ruling.outcome,
            reason=ruling.reason,
            run_version_before=head.run_version,
            run_version_after=head.run_version,
            run_state_before=head.state,
            run_state_after=head.state,
            step=step,
            epoch=epoch,
            actor=actor_of(event),
            detail=ruling.detail,
        )
        self._now.outbox.put(_TRANSITIONS, Audit(fitting(transition)))

    def _answer(self, run: Run, event: RunEvent | RunControl, ruling: Ruling, cause: str) -> None:
        if not isinstance(event, RunEvent) or not event.reply_to:
            return
        step, epoch = step_and_epoch(event)
        state: RunState | None = None
        version = 0
        answer = AnswerType.REFUSED if ruling.failed else answer_type(ruling, run.head.state)
        if isinstance(event, RunStarted):
            state, version = run.head.state, 1
        tell(
            self._now,
            event.reply_to,
            run.id,
            answer,
            step=step,
            epoch=epoch,
            kind=cause,
            # A repeat hears word for word what it heard the first time.
            reason="" if ruling.reason == "repeated" and ruling.answer else ruling.reason,
            detail=ruling.detail,
            current_epoch=ruling.epoch,
            run_state=state,
            run_version=version,
        )

    def _bound_quarantine(self, head: RunHead) -> None:
        """Until when a run that is about to be put aside waits at the most."""
        log_ms = self._now.log_ms
        if head.state is RunState.QUARANTINED or head.saga is not None:
            # Its own end raised, and is tried again when a person has had time to look; or it is
            # taken back and has no time to live, so that a person's deadline takes its place.
            head.expires_ms = log_ms + self._now.policy.person_wait_ms
        elif head.clock_stopped_ms:
            # Nobody was asked about this: its time to live is the one deadline that is left.
            head.expires_ms += log_ms - head.clock_stopped_ms
            head.clock_stopped_ms = 0

    def _raised(self, draft: Draft, unit: str, error: Exception) -> Ruling:
        """Puts the run aside whole, as it was before the unit. Returns what becomes of an event."""
        draft.discard()
        self._now.outbox.rollback(draft.mark)
        run = draft.run
        fresh = Draft(run, self._now)
        before = fresh.head.state
        head = fresh.head
        reason, what = raised(unit, error)
        self._bound_quarantine(head)
        head.state = RunState.QUARANTINED
        head.waiting_for = "person"
        head.quarantine = what
        head.run_version += 1
        head.updated_ms = self._now.log_ms
        fresh.reason = "quarantined"
        if before is not RunState.QUARANTINED:
            stop_attempts(fresh, AnswerType.CANCELLED)
            self._runs.grounded(run)
        put_aside(fresh, what)
        self._now.outbox.put(
            _TRANSITIONS,
            Audit(
                Transition(
                    run_id=run.id,
                    cause=_RAISED,
                    cause_offset=self._now.offset,
                    at_ms=self._now.log_ms,
                    outcome=Outcome.APPLIED,
                    reason=reason,
                    run_version_before=run.head.run_version,
                    run_version_after=head.run_version,
                    run_state_before=before,
                    run_state_after=RunState.QUARANTINED,
                    detail=what,
                )
            ),
        )
        self._now.flying += self._runs.adopt(fresh)
        rebuild(run)
        self._runs.changed(run)
        return Ruling(Outcome.DEAD_LETTERED, reason, what)
