"""The runs of a partition as another cluster takes them in: at rest, each with its plans.

For a fold that goes no further, once all runs that were not at rest are paused and their attempts
are given up: its log is gone, and so is what was in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dalsegno.streams.core.archived import Archived, Idle
from dalsegno.streams.core.capturing import parts_of
from dalsegno.streams.core.cold import (
    PARTS_BYTES_MAX,
    Cold,
    digest_of_parts,
    may_rest,
    unpack_parts,
)
from dalsegno.streams.core.layouts import packed_as
from dalsegno.streams.core.moment import Moment
from dalsegno.streams.core.releasing import Releasing
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import NEVER, Run, Stub

_WHATEVER: Final = Idle(since_ms=NEVER, due_ms=-1)


class Carried(NamedTuple):
    """A run, or the stub of one that ended, as `RunRestored` brings it to a cluster that has never
    heard of it.
    """

    run_id: str
    parts: bytes
    digest: bytes


class Standing(NamedTuple):
    """How a run stands that has not ended. `paused`: somebody holds it."""

    run_id: str
    at_rest: bool
    paused: bool


class Carrying:
    """One partition, of a fold without a store beside it."""

    def __init__(self, now: Moment, runs: Runs, releasing: Releasing, archived: Archived) -> None:
        self._now = now
        self._runs = runs
        self._releasing = releasing
        self._archived = archived

    def live(self) -> Iterator[Standing]:
        """Runs that have not ended and are not in the archive."""
        for run_id in list(self._runs.ids()):
            held = self._runs.get(run_id)
            if isinstance(held, Run):
                yield Standing(run_id, may_rest(held), held.head.paused)

    def archived(self) -> Iterator[tuple[str, Cold]]:
        """Runs whose state is in the archive."""
        for run_id in list(self._runs.ids()):
            held = self._runs.get(run_id)
            if isinstance(held, Cold):
                yield run_id, held

    def ended(self) -> Iterator[Carried]:
        """Stubs of runs that have ended."""
        for run_id in list(self._runs.ids()):
            held = self._runs.get(run_id)
            if isinstance(held, Stub) and held.head.state is not None and not held.waiting:
                yield self._carried(run_id, parts_of(run_id, held))

    def early(self) -> Iterator[tuple[str, int]]:
        """Runs that have not started, and how many events wait for each."""
        for run_id in list(self._runs.ids()):
            held = self._runs.get(run_id)
            if isinstance(held, Stub) and held.waiting:
                yield run_id, len(held.waiting)

    def empty_lines(self) -> None:
        """Steps that stand in lines are ready: their runs are paused, so none goes out."""
        for line in self._now.recovery.holds.lines():
            while self._releasing.release(line):
                pass
        self._now.outbox.take()

    def run(self, run_id: str) -> Carried | str:
        """A run that is at rest, or why it cannot be carried over."""
        resting, _ = self._archived.split((run_id,), _WHATEVER)
        if not resting:
            return "something of it is in flight or waits to be applied, or it is too large"
        return self.with_plans(run_id, resting[0].parts, resting[0].plan)

    def with_plans(self, run_id: str, parts: bytes, plan: bytes) -> Carried | str:
        """Parts of a run, with the plans that they name."""
        found = self._carried(run_id, [*unpack_parts(parts), *self._archived.plan_parts(plan)])
        if len(found.parts) > PARTS_BYTES_MAX:
            return f"with its plan it takes {len(found.parts)} bytes, at most {PARTS_BYTES_MAX}"
        return found

    def _carried(self, run_id: str, parts: Iterable[tuple[bytes, bytes]]) -> Carried:
        layout = self._archived.layout
        packed = packed_as(layout, parts)
        return Carried(run_id, packed, digest_of_parts(packed, layout))
