"""Attempts in flight as the monitor needs to know them."""

from __future__ import annotations

from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.cold import Cold
from dalsegno.streams.core.runstate import Run, Stub, aloft
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.core.step_table import RUNNING


def attempt_of(held: Run | Stub | Cold | None, step: str) -> Attempt | None:
    """The attempt in flight of a step by its name, if its run is followed."""
    if not isinstance(held, Run) or not aloft(held.head):
        return None
    # The id may have come back with another plan since the step was noted.
    place = held.entry.plan.index.get(step)
    return None if place is None else attempt(held, place)


def attempt(run: Run, place: int) -> Attempt | None:
    """The attempt in flight of a step, as the monitor needs to know it."""
    row = run.rows[place]
    flight = row.flight
    if flight is None:
        return None
    step = run.entry.steps[place]
    sequence = None
    if flight.offset >= 0:
        sequence = Sequence(flight.offset, flight.index, flight.count)
    # By position, in the order of the class: see there.
    return Attempt(
        run.id,
        step.name,
        row.epoch,
        f"{run.head.flow}/{step.name}",
        row.state is RUNNING,
        step.queue,
        flight.since_ms,
        step.heartbeat_ms,
        step.timeout_ms,
        sequence,
        flight.start_by_ms,
        flight.worker,
        flight.incarnation,
    )
