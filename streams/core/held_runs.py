"""Runs wherever they are: in memory, as bytes that a restore or the end of a run left, or outside,
in a store that is asked for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dalsegno.schemas.blob import references
from dalsegno.streams.core.capturing import Held, parts_of, thawed
from dalsegno.streams.core.plan_store import PlanStore
from dalsegno.streams.core.residency import Residency
from dalsegno.streams.core.runstate import NEVER, Run
from dalsegno.streams.core.state_codec import Prefix, read_prefix
from dalsegno.streams.core.timers import Due, Timers
from dalsegno.streams.core.warm import PackedRun
from dalsegno.streams.core.weight import weight_of


class HeldRuns:
    """Finds runs and stubs, and lets them come into memory and leave it.

    `open` counts runs that have not ended. `residency`: None while there is no store. `stamp`: what
    runs that are touched now are dated with.
    """

    def __init__(self, plans: PlanStore) -> None:
        self._plans = plans
        self._held: dict[str, Held | PackedRun] = {}
        self._dirty: dict[str, set[int]] = {}
        self.log_timers = Timers(self._log_due, lambda *at: self._due(*at, live=False))
        self.live_timers = Timers(self._live_due, lambda *at: self._due(*at, live=True))
        self.residency: Residency | None = None
        self.stamp = 0
        self.open = 0

    def ids(self) -> Iterator[str]:
        """Ids of all runs and stubs, those in memory first."""
        yield from self._held
        if self.residency is not None:
            yield from self.residency.ids(self._held)

    def held_ids(self) -> Iterator[str]:
        """Ids of those in memory."""
        return iter(self._held)

    def get(self, run_id: str) -> Held | None:
        """A run or stub, read back from its bytes if need be. Raises `StateCorrupt`, `WarmLost`."""
        held = self._held.get(run_id)
        if held is None:
            held = self.near(run_id)
            if held is None:
                return None
        if type(held) is not PackedRun:
            return held  # type: ignore[return-value]
        whole = self._held[run_id] = thawed(run_id, held, self._plans)
        return whole

    def near(self, run_id: str) -> Held | PackedRun | None:
        """The same as it is held in memory, maybe as bytes. Raises `WarmLost`."""
        held = self._held.get(run_id)
        if held is None and self.residency is not None:
            held = self.residency.read(run_id)
            if held is not None:
                self.residency.late += 1
                self._came(run_id, held)
        return held

    def peek(self, run_id: str) -> Held | PackedRun | None:
        """What is in memory of a run."""
        return self._held.get(run_id)

    def look(self, run_id: str) -> Held | None:
        """The same, to be shown: one that is not in memory is read and forgotten again."""
        if self.residency is None or run_id in self._held:
            return self.get(run_id)
        packed = self.residency.read(run_id)
        return None if packed is None else thawed(run_id, packed, self._plans)

    def references(self, run_id: str) -> set[bytes]:
        """Digests of the blobs that stand anywhere in a run or stub; nothing of it is decoded."""
        held = self._held.get(run_id)
        if held is None and self.residency is not None:
            held = self.residency.read(run_id)
        if held is None:
            return set()
        return set().union(*(references(part) for _, part in parts_of(run_id, held)))

    def _came(self, run_id: str, packed: PackedRun) -> Prefix:
        """A run is in memory again, as bytes."""
        assert self.residency is not None, "only with a store are runs outside"
        prefix = read_prefix(packed.header)
        self._held[run_id] = packed
        self.residency.came(run_id, weight_of(packed), self.stamp)
        self.log_timers.came(run_id, prefix.log_due)
        self.live_timers.came(run_id, prefix.live_due)
        return prefix

    def offer(self, run_ids: list[str], found: dict[str, PackedRun]) -> None:
        """Runs that were read beside the fold, before a batch that touches them."""
        assert self.residency is not None, "only with a store are runs outside"
        for run_id, packed in self.residency.looked_up(run_ids, found).items():
            if run_id not in self._held:
                self._came(run_id, packed)

    def missing(self, run_ids: Iterable[str], log_ms: int, live_ms: int, limit: int) -> list[str]:
        """Which of these runs, and of those whose deadlines are due by then, are not in memory."""
        residency = self.residency
        if residency is None or not residency.outside:
            return []
        wanted = dict.fromkeys(run_ids)
        wanted.update(dict.fromkeys(self.log_timers.before(log_ms, limit)))
        wanted.update(dict.fromkeys(self.live_timers.before(live_ms, limit)))
        residency.hold(wanted)
        return [run_id for run_id in wanted if run_id not in self._held]

    def leave(self, bytes_wanted: int, until: int) -> int:
        """Lets runs leave memory (see `Residency.leaving`); how many did."""
        residency = self.residency
        if residency is None:
            return 0
        leaving = residency.leaving(bytes_wanted, self._dirty, until)
        for run_id in leaving:
            held = self._held.pop(run_id)
            prefix = read_prefix(held.header) if isinstance(held, PackedRun) else held
            self.log_timers.left(run_id, prefix.log_due)
            self.live_timers.left(run_id, prefix.live_due)
        return len(leaving)

    def stored(self, number: int) -> None:
        """The store has everything up to this capture."""
        if self.residency is not None:
            self.residency.stored(number)
            self._plans.stored(number, lambda: set(map(self._plan_of, self._held.values())))

    def _plan_of(self, held: Held | PackedRun) -> bytes:
        if isinstance(held, PackedRun):
            return read_prefix(held.header).plan
        return held.entry.plan.digest if isinstance(held, Run) else held.head.plan_digest

    def _due(self, after: Due | None, limit: int, *, live: bool) -> tuple[list[Due], Due | None]:
        assert self.residency is not None, "only with a store are runs outside"
        return self.residency.due(after, limit, self._held, live=live)

    def _log_due(self, run_id: str) -> int:
        held = self._held.get(run_id)
        if held is None:
            return NEVER
        return read_prefix(held.header).log_due if isinstance(held, PackedRun) else held.log_due

    def _live_due(self, run_id: str) -> int:
        held = self._held.get(run_id)
        if held is None:
            return NEVER
        return read_prefix(held.header).live_due if isinstance(held, PackedRun) else held.live_due
