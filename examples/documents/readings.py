"""What each consumer was given, against what the context was at that moment, from the log alone.

The context is rebuilt from the events that the transitions say were applied; no engine is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dalsegno.schemas import values
from dalsegno.schemas.control import DecisionMade
from dalsegno.schemas.events import InformationSupplied, RunStarted, StepCompleted
from dalsegno.schemas.outputs import Handoff, Outcome, Transition
from examples.risk_control.log import Row


class Change(NamedTuple):
    """Fields that one event wrote. `offset`: its place in the run's partition. `by`: the step, or
    the person or service that supplied them.
    """

    offset: int
    run_version: int
    by: str
    fields: Mapping[str, object]


class Reading(NamedTuple):
    """A handoff whose step completed. `stale`: fields that had another value by then."""

    run: str
    step: str
    run_version: int
    inputs: Mapping[str, object]
    size_bytes: int
    undeclared: frozenset[str]
    stale: frozenset[str]


def history(events: Sequence[Row], transitions: Iterable[object]) -> dict[str, list[Change]]:
    """What was written to the context of each run, in order."""
    known = {(row.partition, row.offset): row.record for row in events}
    partition = {
        row.record.run_id: row.partition for row in events if isinstance(row.record, RunStarted)
    }
    found: dict[str, list[Change]] = defaultdict(list)
    for each in transitions:
        if not isinstance(each, Transition) or each.outcome is not Outcome.APPLIED:
            continue
        event = known.get((partition.get(each.run_id, -1), each.cause_offset))
        if type(event).__name__ != each.cause:
            continue  # a timer, which writes nothing
        written = _written(event)
        if written:
            by, fields = written
            change = Change(each.cause_offset, each.run_version_after, by, fields)
            found[each.run_id].append(change)
    return found


def _written(event: object) -> tuple[str, dict[str, object]] | None:
    """Who wrote which fields; steps and people here set whole fields."""
    if isinstance(event, RunStarted):
        return "start", dict(values.unpack_map(event.context))
    if isinstance(event, StepCompleted):
        return event.step, _set(event.ops)
    if isinstance(event, DecisionMade) and event.ops:
        return event.decided_by, _set(event.ops)
    if isinstance(event, InformationSupplied):
        return event.origin, _set(event.ops)
    return None


def _set(ops: bytes) -> dict[str, object]:
    fields: dict[str, object] = {}
    operations = values.unpack(ops)
    assert isinstance(operations, list)
    for each in operations:
        assert isinstance(each, list)
        kind, path, value = each
        assert kind == "set"
        assert isinstance(path, list)
        fields[str(path[0])] = value
    return fields


def readings(
    handoffs: Iterable[object],
    changes: Mapping[str, list[Change]],
    completed: Mapping[tuple[str, str, int], int],
    declared: Mapping[str, frozenset[str]],
) -> list[Reading]:
    """Every handoff whose attempt completed, compared with the context of the moment it did.

    `completed`: offset of the applied `StepCompleted` by run, step and epoch. `declared`: what each
    step may read.
    """
    found = []
    for each in handoffs:
        if not isinstance(each, Handoff):
            continue
        offset = completed.get((each.run_id, each.step, each.epoch))
        if offset is None:
            continue
        context: dict[str, object] = {}
        for change in changes[each.run_id]:
            if change.offset < offset:
                context.update(change.fields)
        inputs = values.unpack_map(each.inputs)
        stale = {name for name in declared[each.step] if inputs.get(name) != context.get(name)}
        found.append(
            Reading(
                each.run_id,
                each.step,
                each.run_version,
                inputs,
                len(each.inputs),
                frozenset(inputs) - declared[each.step],
                frozenset(stale),
            )
        )
    return found


def completions(
    events: Iterable[Row], transitions: Iterable[object]
) -> dict[tuple[str, str, int], int]:
    """Offset of the `StepCompleted` that was applied, by run, step and epoch."""
    applied = {
        (each.run_id, each.cause_offset)
        for each in transitions
        if isinstance(each, Transition)
        and each.cause == StepCompleted.__name__
        and each.outcome is Outcome.APPLIED
    }
    return {
        (row.record.run_id, row.record.step, row.record.epoch): row.offset
        for row in events
        if isinstance(row.record, StepCompleted) and (row.record.run_id, row.offset) in applied
    }
