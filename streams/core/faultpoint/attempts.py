"""What a unit of the fold does to fault points: permits, outcomes, and attempts that end.

Permits are taken while the unit runs, since one unit may give out several steps, and come back when
it is discarded. All else waits until the unit is adopted; nothing of that may fail.
"""

from __future__ import annotations

from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.faultpoint.findings import Finding
from dalsegno.streams.core.faultpoint.points import NEVER, Points
from dalsegno.streams.core.recovery.holding import POINT
from dalsegno.streams.core.rows import Flight
from dalsegno.streams.core.runstate import Run
from dalsegno.streams.core.step_table import HELD


def take_permits(draft: Draft, place: int) -> int:
    """Spends a permit of each fault point in the way; returns when the first of them lapses."""
    taken = draft.now.points.take(draft.steps[place].depends_on)
    draft.permits += taken
    return min((lapses_ms for _, lapses_ms in taken), default=NEVER)


def blame(
    draft: Draft,
    place: int,
    flight: Flight | None,
    error_class: str,
    *,
    dependency: str = "",
    retry_after_ms: int = 0,
) -> None:
    """An attempt failed by a dependency: the one that it names, or any that the step depends on."""
    offset = -1 if flight is None else flight.offset
    began_ms = 0
    if flight is not None and flight.since_ms < draft.now.log_ms:  # else it is heard of only now
        began_ms = flight.since_ms
    finding = Finding(
        place,
        offset=offset,
        began_ms=began_ms,
        dependency=dependency,
        error_class=error_class,
        retry_after_ms=retry_after_ms,
    )
    draft.findings += (finding,)


def follow(points: Points, draft: Draft) -> None:
    """While the run's rows are still as they were before the unit; steps are in their lines."""
    if points.views:
        _flights(points, draft)
        for place in draft.held:
            row = draft.rows[place]
            if row.state is HELD and row.repair is not None and row.repair.by.startswith(POINT):
                points.demand(row.repair.by.removeprefix(POINT))
    for finding in draft.findings:
        points.failed(
            draft.steps[finding.place].depends_on,
            finding.dependency,
            finding.error_class,
            retry_after_ms=finding.retry_after_ms,
            offset=finding.offset,
            began_ms=finding.began_ms,
        )
    if draft.well is not None:
        went_well(points, draft)


def went_well(points: Points, draft: Draft) -> None:
    """The attempt that the unit completed, to those that it depends on."""
    assert draft.well is not None, "asked only of units that completed an attempt"
    place, span_ms, offset = draft.well
    step = draft.steps[place]
    points.succeeded(step.depends_on, span_ms, offset, (draft.head.flow, step.name))


def _flights(points: Points, draft: Draft) -> None:
    run, steps = draft.run, draft.steps
    for place, row in draft.rows.items():
        old = run.rows[place] if place < len(run.rows) else None
        before = None if old is None else old.flight
        if before is row.flight or not steps[place].depends_on:
            continue
        again = old is None or old.epoch != row.epoch
        key = (run.id, place)
        if before is not None and (again or row.flight is None):
            points.landed(key)
        if row.flight is not None and (again or before is None):
            points.took_off(key, steps[place].depends_on, row.flight.offset)


def all_landed(points: Points, run: Run) -> None:
    """The run has ended or was put aside: nothing of it is followed any more."""
    for place, row in enumerate(run.rows):
        if row.flight is not None:
            points.landed((run.id, place))


def are_out(points: Points, run: Run) -> None:
    """After a restore: the attempts of a run that are out."""
    for place, row in enumerate(run.rows):
        step = run.entry.steps[place]
        if row.flight is not None and step.depends_on:
            points.took_off((run.id, place), step.depends_on, row.flight.offset)
