"""The warm store of a partition: its changelog as a table, from which runs are read back.

It follows the changelog: whatever was committed there is put in here, in the same order, be it a
checkpoint just written, the tail since the last time, or everything. Putting in the same again
changes nothing, so a position too early does no harm. Deadlines, counts of runs and of who names a
plan are kept beside the runs: nothing has to walk all of them, at a restart neither.

It is a cache. `open` throws away what it cannot vouch for and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from dalsegno.storage.errors import StoreLostError
from dalsegno.storage.ports import Table, TableStat
from dalsegno.storage.snapshots.store import ChainStore
from dalsegno.storage.warm_codec import (
    FORMAT,
    LIVE_DUE,
    LOG_DUE,
    META,
    MOVING,
    OTHER,
    PLAN,
    RUN,
    Meta,
    RunRecord,
    after_due,
    outside_key,
    part_key,
    read_due,
    read_meta,
    read_plan,
    read_run,
    seal_record,
    unseal,
)
from dalsegno.storage.warm_merge import Merge
from dalsegno.streams.core.state_codec import run_of
from dalsegno.streams.core.warm import PackedPlan, PackedRun, Totals

WRITE_PARTS_MAX: Final = 2_000
"""Parts of one write: the database's write holds Python's lock, some 4 µs per part."""

_PAGE: Final = 1_000


class Place(NamedTuple):
    """Where the changelog has been read to, and when that was all there was (this machine's clock,
    Unix ms).
    """

    position: int
    caught_up_ms: int


class WarmStore:
    """See `Warm` for what the fold asks. One thread writes; any thread may read. `chains`: the
    snapshot chains of its live runs.
    """

    def __init__(self, table: Table, identity: str) -> None:
        """`identity`: names the changelog partition beyond doubt. Raises `StoreLostError` if the
        table is of another one, or cannot be read.
        """
        self._table = table
        self.chains = ChainStore(table)
        self._meta = Meta(FORMAT, identity, -1, 0, 0, 0, 0)
        sealed = table.get_many([META])[0]
        if sealed is None:
            if table.scan(b"", b"\xff", 1):
                raise StoreLostError("entries without a position")
            return
        found = read_meta(sealed)
        if found.format != FORMAT:
            raise StoreLostError(f"format {found.format}; this code reads {FORMAT}")
        if found.identity != identity:
            raise StoreLostError(f"it is of {found.identity}, not of {identity}")
        self._meta = found

    @property
    def place(self) -> Place | None:
        """Where the changelog has to be read on; None when nothing was put in yet."""
        meta = self._meta
        return None if meta.position < 0 else Place(meta.position, meta.caught_up_ms)

    def put(self, parts: Mapping[bytes, bytes | None], place: Place | None = None) -> None:
        """Put in changed parts (None: deleted), and when all are in, the new place.

        In several writes: one that fails leaves the place as it was, and all are put in again.
        Raises `StoreBusyError`, `StoreFullError`, `StoreLostError`.
        """
        runs: dict[bytes, dict[bytes, bytes | None]] = {}
        others: dict[bytes, bytes | None] = {}
        for key, value in parts.items():
            if key[:1] in b"rscjvow" and key[:1]:
                runs.setdefault(run_of(key)[0].encode(), {})[key] = value
            else:
                others[key] = value
        chosen: dict[bytes, dict[bytes, bytes | None]] = {}
        size = 0
        for run, changed in runs.items():
            chosen[run] = changed
            size += len(changed)
            if size >= WRITE_PARTS_MAX:
                self._write(chosen, {}, None)
                chosen, size = {}, 0
        self._write(chosen, others, place)

    def _write(
        self,
        runs: Mapping[bytes, Mapping[bytes, bytes | None]],
        others: Mapping[bytes, bytes | None],
        place: Place | None,
    ) -> None:
        merge = Merge(self._table.get_many, self._table.scan)
        merge.runs(runs)
        merge.others(others)
        meta = self._meta
        new = Meta(
            FORMAT,
            meta.identity,
            meta.position if place is None else place.position,
            meta.caught_up_ms if place is None else place.caught_up_ms,
            meta.runs + merge.runs_more,
            meta.open + merge.open_more,
            meta.cold + merge.cold_more,
        )
        changes = merge.changes()
        changes[META] = seal_record(META, new)
        self._table.write(changes)
        self._meta = new

    def load(self, run_ids: Sequence[str]) -> dict[str, PackedRun]:
        """Those of the runs that are stored, read together."""
        names = [run_id.encode() for run_id in run_ids]
        found: dict[str, tuple[bytes, RunRecord]] = {}
        outside: list[bytes] = []
        keys = [RUN + name for name in names]
        for run_id, name, key, sealed in zip(
            run_ids, names, keys, self._table.get_many(keys), strict=True
        ):
            if sealed is not None:
                record = read_run(key, sealed)
                found[run_id] = name, record
                outside += [outside_key(name, part) for part in record.outside]
        values = dict(zip(outside, self._table.get_many(outside), strict=True)) if outside else {}
        packed: dict[str, PackedRun] = {}
        for run_id, (name, record) in found.items():
            parts = [(part_key(part, name), value) for part, value in record.parts.items()]
            for part in record.outside:
                key = outside_key(name, part)
                parts.append((part_key(part, name), _present(key, values[key])))
            packed[run_id] = PackedRun(record.header, parts)
        return packed

    def plans(self, digests: Iterable[bytes]) -> dict[bytes, PackedPlan]:
        """Those of the plans that are stored."""
        keys = [PLAN + digest for digest in digests]
        packed: dict[bytes, PackedPlan] = {}
        for key, sealed in zip(keys, self._table.get_many(keys), strict=True):
            if sealed is not None:
                record = read_plan(key, sealed)
                packed[key[1:]] = PackedPlan(record.packed, record.refs, record.longer)
        return packed

    def due(
        self, after: tuple[int, str] | None, limit: int, *, live: bool
    ) -> list[tuple[int, str]]:
        """The next deadlines and their runs behind `after`, in order."""
        kind = LIVE_DUE if live else LOG_DUE
        first = kind if after is None else after_due(kind, after[0], after[1].encode())
        return [read_due(key) for key, _ in self._table.scan(first, _behind(kind), limit)]

    def ids(self, after: str, limit: int) -> list[str]:
        """The next run ids behind `after`, in order."""
        first = RUN + after.encode() + b"\0" if after else RUN
        return [key[1:].decode() for key, _ in self._table.scan(first, _behind(RUN), limit)]

    def moving(self) -> list[str]:
        """Runs with attempts in flight or steps in lines, and those wanted from the archive."""
        return [key[1:].decode() for key, _ in self._all(MOVING)]

    def totals(self) -> Totals:
        """How many are stored."""
        return Totals(self._meta.runs, self._meta.open, self._meta.cold)

    def others(self) -> list[tuple[bytes, bytes]]:
        """Parts that belong to no run and no plan."""
        return [(key[1:], unseal(key, value)) for key, value in self._all(OTHER)]

    def _all(self, kind: bytes) -> Iterable[tuple[bytes, bytes]]:
        first = kind
        while page := self._table.scan(first, _behind(kind), _PAGE):
            yield from page
            first = page[-1][0] + b"\0"

    def touch(self, place: Place) -> None:
        """Nothing has changed up to this place. Raises as `put`."""
        self.put({}, place)

    def flush(self) -> None:
        """What was put in outlives the process. Raises as `put`."""
        self._table.flush()

    def compact(self) -> None:
        """What was deleted is in no file any more. Raises as `put`."""
        self._table.compact()

    def stat(self) -> TableStat:
        """How the table is."""
        return self._table.stat()

    def close(self) -> None:
        """Let go of the table. Raises `StoreError` if it was not flushed."""
        self._table.close()


def _behind(kind: bytes) -> bytes:
    return bytes([kind[0] + 1])


def _present(key: bytes, sealed: bytes | None) -> bytes:
    if sealed is None:
        raise StoreLostError(f"{key!a} is missing")
    return unseal(key, sealed)
