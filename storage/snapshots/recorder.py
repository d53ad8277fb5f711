"""Keeps the snapshot chains of one partition: what is noted waits, and becomes links.

Nothing waits for it. What is noted is bounded: beyond the bound the oldest is given up, and the
chain goes on behind a gap; the log has what it lacks. One thread writes; notes come between two
writes, from the same owner; any thread may look at an earlier version meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import msgspec

from dalsegno.schemas.outputs import RunState
from dalsegno.storage.errors import StoreError
from dalsegno.storage.snapshots.chain import restore
from dalsegno.storage.snapshots.errors import SnapshotCorrupt
from dalsegno.storage.snapshots.extending import Chain, Extended, Extending, NotThere, opened
from dalsegno.storage.snapshots.link import LinkKind
from dalsegno.storage.snapshots.pace import Pace
from dalsegno.storage.snapshots.store import ChainStore
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.state_codec import KIND_RUN, read_prefix
from dalsegno.streams.core.versions import Facts, Made, Past, Whose
from dalsegno.streams.core.warm import PackedRun

PENDING_BYTES_MAX: Final = 8 << 20
"""Of one partition. From half of it on the oldest versions are written before they are due."""
CHAINS_BYTES_MAX: Final = 4 << 20
"""Of the ends of chains that are kept in memory, of one partition."""
NOTES_BYTES_MAX: Final = 2 * PENDING_BYTES_MAX + CHAINS_BYTES_MAX
"""Of all notes of one partition: versions on their way to the store, versions that wait for their
link, ends of chains. Where memory is small it is less, and each has its share of it.
"""
RUNS_AT_ONCE: Final = 32

Load = Callable[[Sequence[str]], dict[str, PackedRun]]


class Written(msgspec.Struct, kw_only=True):
    """What a round did. `links`, `bytes`: by kind. `given_up`: versions that chains lack for good.
    `seconds`: of each link, more or less. `pruned`: links that were deleted as too many. `broken`:
    chains that were begun anew because of a fault of ours, and which.
    """

    links: Counter[LinkKind] = msgspec.field(default_factory=Counter)
    bytes: Counter[LinkKind] = msgspec.field(default_factory=Counter)
    corrupt: list[SnapshotCorrupt] = msgspec.field(default_factory=list)
    seconds: list[float] = msgspec.field(default_factory=list)
    broken: list[str] = msgspec.field(default_factory=list)
    pruned: int = 0
    given_up: int = 0


class Found(msgspec.Struct, frozen=True):
    """An earlier version, None if neither chain nor memory has it; what was damaged on the way."""

    past: Past | None
    faults: tuple[SnapshotCorrupt, ...] = ()


class Recorder:
    """See above. `load` reads runs as the store has them: at the last of the noted versions."""

    def __init__(
        self,
        chains: ChainStore,
        load: Load,
        pace: Pace,
        *,
        keep: int,
        bytes_max: int = NOTES_BYTES_MAX,
    ) -> None:
        self._chains = chains
        self._load = load
        self._pace = pace
        self._keep = keep
        self._pending_max = pending_share(bytes_max)
        self._ends_max = min(CHAINS_BYTES_MAX, bytes_max // 5)
        self._pending: dict[str, list[Made]] = {}
        self._due: dict[str, None] = {}
        self._ends: OrderedDict[str, Chain] = OrderedDict()
        self._ends_bytes = 0
        self._bytes = 0
        self._told = Written()
        self.pending = 0

    @property
    def weight(self) -> int:
        """Bytes that it keeps in memory, more or less: versions that wait, ends of chains."""
        return self._bytes + self._ends_bytes

    @property
    def due(self) -> bool:
        """Whether there is something to write."""
        return bool(self._due)

    def note(self, made: Sequence[Made]) -> None:
        """Versions that the store has now. Not while a write is under way."""
        for each in made:
            run_id = each.run_id
            if each.state in FINAL_RUNS:
                self.forget(run_id)  # its chain has gone with it
                continue
            waiting = self._pending.get(run_id, [])
            if waiting and not _follows(waiting[-1], each):
                self._told.given_up += len(waiting)
                self._done(run_id)
            waiting = self._pending.setdefault(run_id, [])
            before = waiting[-1].offset if waiting else self._end_of(run_id)
            if before >= 0:
                self._pace.made(max(0, each.offset - before))
            waiting.append(each)
            self._bytes += each.weight
            self.pending += 1
            if len(waiting) >= self._pace.every:
                self._due[run_id] = None
        self._bound()

    def _end_of(self, run_id: str) -> int:
        chain = self._ends.get(run_id)
        newest = None if chain is None else chain.writer.newest
        return -1 if newest is None else newest[1]

    def _bound(self) -> None:
        ahead = 0
        for run_id, waiting in self._pending.items():
            if self._bytes - ahead <= self._pending_max // 2:
                break
            self._due[run_id] = None
            ahead += sum(each.weight for each in waiting)
        while self._bytes > self._pending_max:
            run_id = next(iter(self._pending))
            self._told.given_up += len(self._pending[run_id])
            self._done(run_id)

    def tick(self, now_s: float) -> None:
        """Choose the cadence anew, now and then."""
        before = self._pace.every
        if self._pace.tick(now_s, self.pending) and self._pace.every < before:
            self._due.update(
                (run_id, None)
                for run_id, waiting in self._pending.items()
                if len(waiting) >= self._pace.every
            )

    def everything(self) -> None:
        """All that waits is due: the owner goes."""
        self._due.update(dict.fromkeys(self._pending))

    def forget(self, run_id: str) -> None:
        """What is noted of a run is dropped, and what is known of its chain; the chain itself is
        the store's to remove.
        """
        self._done(run_id)
        self._drop_end(run_id)

    def _done(self, run_id: str) -> None:
        waiting = self._pending.pop(run_id, ())
        self._due.pop(run_id, None)
        self.pending -= len(waiting)
        self._bytes -= sum(each.weight for each in waiting)

    def told(self) -> Written:
        """What was done since the last call. Not while a write is under way."""
        told, self._told = self._told, Written()
        return told

    def write(self, budget_s: float) -> None:
        """Writes links that are due, for about this long. Blocks.

        Raises `StoreBusyError`, `StoreFullError`, `StoreLostError`; nothing is lost then.
        """
        until = time.perf_counter() + budget_s
        while self._due:
            self._round(list(islice(self._due, RUNS_AT_ONCE)))
            if time.perf_counter() >= until:
                break

    def _round(self, run_ids: list[str]) -> None:
        began = time.perf_counter()
        stored = self._load(run_ids)
        changes: dict[tuple[str, int], bytes | None] = {}
        extended: dict[str, Extended] = {}
        for run_id in run_ids:
            packed = stored.get(run_id)
            if packed is None or read_prefix(packed.header).kind != KIND_RUN:
                self.forget(run_id)  # it has ended: its chain went with it
                continue
            try:
                found = self._extended(run_id, packed, changes)
            except NotThere:
                self._drop_end(run_id)
                self._due.pop(run_id, None)  # noted again with its next version
                continue
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - as follows
                # Whatever is wrong with it costs this run its chain, and nothing else.
                self._told.broken.append(f"{run_id}: {error}")
                changes.update(((run_id, at), None) for at in self._chains.links(run_id))
                self.forget(run_id)
                continue
            extended[run_id] = found
            changes.update(((run_id, version), link) for version, link in found.changes.items())
        try:
            self._chains.write(changes)
        except BaseException:
            for run_id in extended:
                self._drop_end(run_id)
            raise
        self._settle(extended, began)

    def _extended(
        self, run_id: str, packed: PackedRun, changes: dict[tuple[str, int], bytes | None]
    ) -> Extended:
        waiting = self._pending[run_id]
        links: dict[int, bytes] = {}
        faults: tuple[SnapshotCorrupt, ...] = ()
        began_ms = waiting[0].began_ms
        chain = self._ends.get(run_id)
        if chain is None or self._to_be_read(chain, waiting[0]):
            links = self._chains.links(run_id)
            chain, gone, faults = opened(run_id, began_ms, links)
            changes.update(((run_id, version), None) for version in gone)
            links = {version: link for version, link in links.items() if version not in gone}
        found = Extending(run_id, packed, self._keep).extend(chain, links, waiting)
        return msgspec.structs.replace(found, faults=(*faults, *found.faults))

    def _to_be_read(self, chain: Chain, first: Made) -> bool:
        """Whether its links are needed: it is another run's, behind, or about to be too long."""
        newest = chain.writer.newest
        return (
            chain.began_ms != first.began_ms
            or (newest is not None and first.number > newest[0] + 1)
            or len(chain.versions) + 2 > 2 * self._keep
        )

    def _settle(self, extended: dict[str, Extended], began: float) -> None:
        told = self._told
        packing_s = 0.0
        count = 0
        for run_id, found in extended.items():
            self._done(run_id)
            self._keep_end(run_id, found.chain)
            writer = found.writer
            for kind, size in writer.written:
                told.links[kind] += 1
                told.bytes[kind] += size
            count += len(writer.written)
            packing_s += writer.packing_s
            writer.written.clear()
            writer.packing_s = 0.0
            told.corrupt += found.faults
            told.pruned += found.pruned
            if found.behind is not None or found.faults:
                self._pace.failed(found.behind or 0)
        if count:
            took_s = time.perf_counter() - began
            told.seconds += [took_s / count] * count
            self._pace.took(count, max(0.0, took_s - packing_s))

    def _keep_end(self, run_id: str, chain: Chain) -> None:
        self._drop_end(run_id)
        self._ends[run_id] = chain
        chain.weight = chain.writer.weight
        self._ends_bytes += chain.weight
        while self._ends_bytes > self._ends_max:
            self._drop_end(next(iter(self._ends)))

    def _drop_end(self, run_id: str) -> None:
        chain = self._ends.pop(run_id, None)
        if chain is not None:
            self._ends_bytes -= chain.weight

    def noted(self, run_id: str) -> list[Made]:
        """What waits of a run."""
        return list(self._pending.get(run_id, ()))

    def look(self, whose: Whose, run_version: int, later: Sequence[Made]) -> Found:
        """A run at one of its versions, from its chain and what was noted `later`. Blocks.

        Raises `StoreLostError`.
        """
        found = look(whose, run_version, self._chains.links(whose.run_id), later)
        if found.faults:
            # Perhaps it was pruned while it was read.
            found = look(whose, run_version, self._chains.links(whose.run_id), later)
        return found


def pending_share(bytes_max: int) -> int:
    """How many of the bytes for all notes of a partition versions that wait may take."""
    return min(PENDING_BYTES_MAX, bytes_max * 2 // 5)


def _follows(before: Made, made: Made) -> bool:
    return made.began_ms == before.began_ms and made.number == before.number + 1


def look(whose: Whose, run_version: int, links: dict[int, bytes], later: Sequence[Made]) -> Found:
    """A run at one of its versions."""
    later = [each for each in later if each.began_ms == whose.began_ms]
    if later and later[0].first is not None:
        return _followed(Facts.begin(later[0], "memory"), run_version, later[1:])
    if not links or next(iter(links)) > run_version:
        return Found(None)
    try:
        found = restore(whose.run_id, list(links.values()), run_version=run_version)
    except SnapshotCorrupt as fault:
        return Found(None, (fault,))
    version = found.version
    if version is None or found.header.began_ms != whose.began_ms:
        return Found(None, found.faults)
    past = Past(
        version.number,
        RunState(version.state),
        version.flags,
        version.at_ms,
        found.header.plan_digest,
        found.settled,
        found.context,
        "chain",
        found.header.schema,
        found.header.schema_version,
        found.header.field_versions,
    )
    if version.number == run_version:
        return Found(past, found.faults)
    return _followed(Facts(past), run_version, later, found.faults)


def _followed(
    facts: Facts,
    run_version: int,
    later: Sequence[Made],
    faults: tuple[SnapshotCorrupt, ...] = (),
) -> Found:
    for made in later:
        if facts.number < made.number <= run_version:
            if made.number != facts.number + 1:
                break
            facts.follow(made)
    return Found(facts.past if facts.number == run_version else None, faults)
