"""Runs as a fold has them, their contexts in clear, at each run version that a record leaves."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dalsegno.ops.folding import Folded
from dalsegno.schemas.control import ErasureRequested
from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.actions import Audit
from dalsegno.streams.core.context_versions import version_of
from dalsegno.streams.core.runstate import Run


class HeldContext(NamedTuple):
    """The context of a run at one run version. Holds secrets: show nothing but `fields` of it.

    `context` is a MessagePack map. `versions`: by field, of the context schema.
    """

    run_id: str
    flow: str
    state: RunState
    run_version: int
    schema: str
    schema_version: int
    versions: dict[str, int]
    context: bytes
    secrets: frozenset[str]


def _not_told(run_id: str) -> None:
    """Nobody asks which runs were erased."""


def follow(
    folded: Iterator[Folded],
    wanted: Callable[[Run], bool],
    erased: Callable[[str], object] = _not_told,
) -> Iterator[Run]:
    """Each wanted run after each record that moved it, the one that ended it included; to look at
    before the next is asked for. One that was erased is followed no further, and named to `erased`.
    """
    live: dict[str, Run] = {}
    for each in folded:
        event = each.record.event
        if isinstance(event, ErasureRequested) and each.partition.erased(event.run_id) is not None:
            live.pop(event.run_id, None)
            erased(event.run_id)
        moved = dict.fromkeys(
            output.action.transition.run_id
            for output in each.outputs
            if isinstance(output.action, Audit)
        )
        for run_id in moved:
            run = each.partition.live_run(run_id)
            if run is not None and wanted(run):
                live[run_id] = run
                yield run
                continue
            last = live.pop(run_id, None)
            if last is not None:
                # Its end was adopted into the run before the run was let go.
                yield last


def held_context(run: Run) -> HeldContext:
    """The run's context as it is now."""
    head = run.head
    return HeldContext(
        run_id=run.id,
        flow=head.flow,
        state=head.state,
        run_version=head.run_version,
        schema=head.context_schema,
        schema_version=head.context_schema_version,
        versions={name: version_of(head, name) for name in run.context.names()},
        context=run.context.pack(),
        secrets=run.entry.plan.secrets,
    )
