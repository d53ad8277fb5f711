"""What a partition's owner does about runs in the archive. It decides nothing: see `cold_runs`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import islice
from typing import NamedTuple

from dalsegno.streams.core.cold import (
    PARTS_BYTES_MAX,
    Cold,
    ColdHead,
    digest_of_parts,
    layout_of,
    may_rest,
    rests,
)
from dalsegno.streams.core.cold_runs import ColdRuns
from dalsegno.streams.core.layouts import LAYOUTS, NotInLayout, packed_run
from dalsegno.streams.core.moment import Moment
from dalsegno.streams.core.plan_pack import before_of
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import Run
from dalsegno.streams.core.state_codec import KIND_RUN, read_head, read_prefix
from dalsegno.streams.core.warm import PackedRun

Wanted = tuple[str, ColdHead]
"""A run that is to come back, and what its stub says."""


class Idle(NamedTuple):
    """Which runs an owner archives: not touched since `since_ms`, no deadline before `due_ms`."""

    since_ms: int
    due_ms: int


class Resting(NamedTuple):
    """A run that may leave: its parts as `packed_run` gives them, their digest, its plan's, and
    when it was last changed.
    """

    run_id: str
    parts: bytes
    digest: bytes
    plan: bytes
    updated_ms: int


class Archived:
    """One partition. Runs are looked at page by page, so that nothing walks all of them at once.

    `layout`: in which states are written, by the rules in force.
    """

    def __init__(self, now: Moment, runs: Runs, cold: ColdRuns, layout: int) -> None:
        self._now = now
        self._runs = runs
        self._cold = cold
        self.layout = layout

    @property
    def count(self) -> int:
        """Runs whose state is in the archive."""
        return self._runs.cold

    @property
    def stayed(self) -> int:
        """Runs that had changed when their segment was confirmed, so far."""
        return self._cold.stayed

    def is_wanted(self, run_id: str) -> bool:
        """Whether a run is to come back."""
        return run_id in self._runs.wanted

    @property
    def wanted_count(self) -> int:
        """Runs that are to come back."""
        return len(self._runs.wanted)

    def wanted(self, limit: int | None = None, but: Container[str] = ()) -> list[Wanted]:
        """Of them those that have waited for longest, as far as is known, and none of `but`.

        Raises `WarmLost`.
        """
        names = islice((name for name in self._runs.wanted if name not in but), limit)
        found = [(run_id, self._runs.get(run_id)) for run_id in list(names)]
        heads = [(run_id, held.head) for run_id, held in found if isinstance(held, Cold)]
        return sorted(heads, key=lambda each: (each[1].wanted_ms, each[0]))

    def ids(self, after: str, limit: int) -> list[str] | None:
        """The next run ids behind `after` in the store, in order; None without a store.

        Raises `WarmLost`.
        """
        held = self._runs.residency
        return None if held is None else held.warm.ids(after, limit)

    def names(self) -> list[str]:
        """Ids of the runs in memory, as of now."""
        return list(self._runs.held_ids())

    def outside(self, run_ids: list[str], idle: Idle) -> list[Resting]:
        """Of these runs, which are not in memory, those that may leave. Raises `WarmLost`."""
        residency = self._runs.residency
        if residency is None or not run_ids:
            return []
        back = self._cold.back_since(idle.since_ms)
        found = residency.warm.load(run_ids)
        judged = [resting_of(run_id, packed, idle, self.layout) for run_id, packed in found.items()]
        return [each for each in judged if each is not None and each.run_id not in back]

    def may_need(self, run_id: str, newest_ms: int) -> bool:
        """Whether a run may need a segment of states that has it: its state is in the archive (in
        this one, or one that this one replaces), or it may be as the segment has it, where nothing
        was touched after `newest_ms`. Raises `WarmLost`.
        """
        held = self._runs.look(run_id)
        if isinstance(held, Cold):
            return True
        return isinstance(held, Run) and held.head.updated_ms <= newest_ms

    def split(self, run_ids: Iterable[str], idle: Idle) -> tuple[list[Resting], list[str]]:
        """Of these runs those in memory that may leave, and those that are not in memory."""
        resting: list[Resting] = []
        outside: list[str] = []
        back = self._cold.back_since(idle.since_ms)
        for run_id in run_ids:
            held = self._runs.peek(run_id)
            if held is None:
                outside.append(run_id)
            elif run_id in back or isinstance(held, Cold):
                continue
            elif isinstance(held, PackedRun):
                found = resting_of(run_id, held, idle, self.layout)
                resting += [] if found is None else [found]
            elif isinstance(held, Run) and _is_idle(held, idle):
                plan, updated_ms = held.entry.plan.digest, held.head.updated_ms
                found = _resting(run_id, held, plan, updated_ms, self.layout)
                resting += [] if found is None else [found]
        return resting, [] if self._runs.residency is None else outside

    def parts_of(self, run_id: str, digest: bytes) -> bytes | None:
        """What a segment has of a run that is still here and may leave by this digest; None if the
        digest is of another state. Raises `StateCorrupt`.
        """
        return self._cold.parts_of(run_id, digest) if layout_of(digest) in LAYOUTS else None

    def plan_parts(self, digest: bytes) -> list[tuple[bytes, bytes]]:
        """A plan and those that it extends, as parts: so that a segment needs nothing beside it."""
        found: list[tuple[bytes, bytes]] = []
        while digest:
            packed = self._now.plans.packed(digest) or b""
            found.append((b"p" + digest, packed))
            digest = before_of(packed)
        return found


def _is_idle(run: Run, idle: Idle) -> bool:
    if run.head.updated_ms > idle.since_ms or run.log_due <= idle.due_ms:
        return False
    return may_rest(run)


def resting_of(run_id: str, packed: PackedRun, idle: Idle, layout: int) -> Resting | None:
    """The same of a run that is bytes; for any thread. Raises `StateCorrupt`."""
    prefix = read_prefix(packed.header)
    if prefix.kind != KIND_RUN or prefix.waiting or prefix.log_due <= idle.due_ms:
        return None
    head = read_head(run_id, packed.header)
    if not rests(head, prefix.live_due, None) or head.updated_ms > idle.since_ms:
        return None
    return _resting(run_id, packed, prefix.plan, head.updated_ms, layout)


def _resting(
    run_id: str, held: Run | PackedRun, plan: bytes, updated_ms: int, layout: int
) -> Resting | None:
    """None for a run that would not fit in a record of the log, or in the layout: it stays."""
    try:
        parts = packed_run(layout, run_id, held)
    except NotInLayout:
        return None
    if len(parts) > PARTS_BYTES_MAX:
        return None
    return Resting(run_id, parts, digest_of_parts(parts, layout), plan, updated_ms)
