"""An outage that outlasts a run's time to live: the service gives up, and hands over to a person.

Real outages end soon or last for hours. A run that is still being brought back when its time is
over has not failed by itself, so it does not just expire: each step that waits to be brought back
(in a line, for its time, behind what it needs, or ready while its run is paused or full), or is out
for it, is put to a person, with all that is known, once in a run's life. One that waits for a step
or a queue to supply its fields is put to a person as when that was overdue. The run then has as
long as a person has, and its time to live again. An attempt that is out is superseded: its worker
is told, its epoch is over, and what it may have done stays in the journal.

A run that is being taken back has no time to live. While all that is left of it waits for fault
points, it has as long as it had forward; then its compensations are put to a person, each time.
"""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.attempts import close, dismiss
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.escalating import ask
from dalsegno.streams.core.people.asking import Failure
from dalsegno.streams.core.recovery.damage import Damage
from dalsegno.streams.core.recovery.holding import POINT
from dalsegno.streams.core.recovery.seeking import overdue, was_asked
from dalsegno.streams.core.rows import StepRow, stays_with_service
from dalsegno.streams.core.runstate import NEVER
from dalsegno.streams.core.step_table import (
    BACKING_OFF,
    DISPATCHED,
    FINAL_STEPS,
    HELD,
    MISSING_INFO,
    PENDING,
    READY,
    RUNNING,
    StepInput,
)

REASON: Final = "outage_outlasted_ttl"
# Packages of one run at a time; what is beyond them waits on behind its line.
_STEPS_MAX: Final = 16
_AFTER_FAULTS: Final = frozenset({BACKING_OFF, PENDING, READY, DISPATCHED, RUNNING, MISSING_INFO})


def hand_over(draft: Draft) -> bool:
    """Asks about the hurt steps. False: nothing is brought back, or people were asked once."""
    head, now = draft.head, draft.now
    damage: Damage | None = head.damage
    if head.state is RunState.QUARANTINED:
        # Put aside until a person decides: it does not come back by itself.
        return False
    if damage is None or head.saga is not None or head.handed_over:
        return False
    hurt = [place for place, row in enumerate(draft.run.rows) if is_brought_back(row)]
    if not hurt:
        return False
    head.handed_over = True
    head.expires_ms = now.log_ms + now.policy.person_wait_ms + head.ttl_ms
    _ask_about(draft, hurt, damage)
    return True


def is_brought_back(row: StepRow) -> bool:
    """Whether the step is held, or waits for or is in a further attempt after a fault not its own.

    A step that only failed by its own word is not.
    """
    if row.repair is None:
        return False
    if row.state is HELD:
        return True
    if row.state is READY and not row.repair.hurt:
        # It was held, and when its turn came its run held it back instead.
        return not row.repair.supplies
    if row.state is MISSING_INFO and was_asked(row):
        return False
    return row.state in _AFTER_FAULTS and row.repair.hurt and row.infra > 0


def wait_no_longer(draft: Draft) -> None:
    """All that is left to take back has waited for its fault points for a whole time to live."""
    damage: Damage | None = draft.head.damage
    assert damage is not None, "what is held is damage"
    held = [
        place
        for place, row in enumerate(draft.run.rows)
        if row.state is HELD and row.repair is not None and row.repair.by.startswith(POINT)
    ]
    draft.head.expires_ms = NEVER
    _ask_about(draft, held, damage)


def _ask_about(draft: Draft, hurt: list[int], damage: Damage) -> None:
    since = draft.now.log_ms - damage.since_ms
    for place in hurt[:_STEPS_MAX]:
        row = draft.row(place)
        if row.state is MISSING_INFO:
            overdue(draft, place, row)
            continue
        evidence = _evidence(draft, place, row)
        _supersede(draft, place, row)
        detail = (
            f"being brought back for {since} ms, {damage.lost} attempts lost in the run,"
            f" {row.infra} of this step; the run's time to live is over"
        )
        failure = Failure(
            type="dependency",
            error_class=str(row.closed),
            message=detail,
            dependency=", ".join(draft.steps[place].depends_on),
            evidence=evidence,
        )
        ask(draft, place, row, reason=REASON, detail=detail, failure=failure)
    draft.reason = REASON


def _evidence(draft: Draft, place: int, row: StepRow) -> str:
    """Where the step stands at the end of the run's time."""
    flight = row.flight
    if row.state is PENDING:
        needs = draft.plan.needs[place]
        open_needs = [need for need in needs if draft.peek(need).state not in FINAL_STEPS]
        return "waits behind " + ", ".join(draft.steps[need].name for need in open_needs)
    if row.state is READY:
        return f"ready, {_held_back_by(draft)}"
    if flight is None:
        return f"held by {row.repair.by}" if row.repair is not None and row.repair.by else ""
    out = f"epoch {row.epoch} out for {draft.now.log_ms - flight.since_ms} ms"
    if row.state is DISPATCHED:
        return f"{out}, not started"
    return f"{out}, progress {flight.progress}, worker {flight.worker}"


def _held_back_by(draft: Draft) -> str:
    """What of the run keeps a ready step from going."""
    head = draft.head
    if head.paused:
        return f"the run is paused by {head.paused_by}"
    if head.gate:
        return "a flag of the run waits for a person"
    if head.plan_open:
        return "the rest of the run's plan is awaited"
    return "the run has no room for it"


def _supersede(draft: Draft, place: int, row: StepRow) -> None:
    """The attempt that is out is over, without a charge: nobody knows that it failed.

    A service's own stays its own, as when it stalls.
    """
    step = draft.steps[place]
    if row.flight is not None and not stays_with_service(step, row):
        dismiss(draft, step.name, row, StepInput.TTL)
        close(row, StepInput.TTL)
