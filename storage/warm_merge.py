"""What one write of the warm store changes: parts of runs into records, and what hangs on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dalsegno.storage.errors import StoreLostError
from dalsegno.storage.snapshots.store import Scan, entries
from dalsegno.storage.warm_codec import (
    INLINE_BYTES,
    LIVE_DUE,
    LOG_DUE,
    MOVING,
    OTHER,
    PLAN,
    RUN,
    PlanRecord,
    RunRecord,
    due_key,
    outside_key,
    part_name,
    read_plan,
    read_run,
    seal,
    seal_record,
)
from dalsegno.streams.core.plan_pack import before_of
from dalsegno.streams.core.runstate import NEVER
from dalsegno.streams.core.state_codec import KIND_COLD, KIND_RUN, Prefix, StateCorrupt, read_prefix

_PLAN_PART: Final = b"p"
_NO_PLAN: Final = PlanRecord(b"", 0, 0)
_NO_RUN: Final = RunRecord(b"", {}, [])
# Deadlines and flags are in their keys.
_MARK: Final = b"\0"

ReadMany = Callable[[Sequence[bytes]], list[bytes | None]]


class Merge:
    """Collects the changes of one write. Reads what is there to know what becomes of it."""

    def __init__(self, read: ReadMany, scan: Scan) -> None:
        self._read = read
        self._scan = scan
        self._changes: dict[bytes, bytes | None] = {}
        self._refs: dict[bytes, int] = {}
        self._plans: dict[bytes, bytes | None] = {}
        self.runs_more = 0
        self.open_more = 0
        self.cold_more = 0

    def changes(self) -> dict[bytes, bytes | None]:
        """What to write, all of it or nothing."""
        self._count_plans()
        return self._changes

    def others(self, parts: Mapping[bytes, bytes | None]) -> None:
        """Plans, and parts that belong to no run."""
        for part, value in parts.items():
            if part[:1] == _PLAN_PART:
                self._plans[part[1:]] = value
            else:
                key = OTHER + part
                self._changes[key] = None if value is None else seal(key, value)

    def runs(self, runs: Mapping[bytes, Mapping[bytes, bytes | None]]) -> None:
        """Changed parts by run, the header among them. Raises `StoreLostError`."""
        keys = [RUN + run for run in runs]
        for key, sealed, (run, parts) in zip(keys, self._read(keys), runs.items(), strict=True):
            old = _NO_RUN if sealed is None else read_run(key, sealed)
            new = self._merged(run, old, parts)
            self._changes[key] = None if new is None else seal_record(key, new)
            self._moved(run, old.header, b"" if new is None else new.header)

    def _merged(
        self, run: bytes, old: RunRecord, parts: Mapping[bytes, bytes | None]
    ) -> RunRecord | None:
        header: bytes | None = old.header
        inline, outside = dict(old.parts), dict.fromkeys(old.outside)
        for key, value in parts.items():
            if key[:1] == RUN:
                header = value
                continue
            name = part_name(key, run)
            if value is not None and name not in outside:
                inline[name] = value
            elif value is not None:
                self._put_outside(run, name, value)
            elif name in outside:
                del outside[name]
                self._changes[outside_key(run, name)] = None
            else:
                inline.pop(name, None)
        if header and sum(map(len, inline.values())) > INLINE_BYTES:
            for name, value in inline.items():
                self._put_outside(run, name, value)
            outside.update(dict.fromkeys(inline))
            inline = {}
        if header is None or (not header and not inline and not outside):
            # What is left of its parts is deleted by name, before or after.
            for name in outside:
                self._changes[outside_key(run, name)] = None
            return None
        return RunRecord(header, inline, list(outside))

    def _put_outside(self, run: bytes, name: bytes, value: bytes) -> None:
        key = outside_key(run, name)
        self._changes[key] = seal(key, value)

    def _moved(self, run: bytes, old: bytes, new: bytes) -> None:
        """What the header says without reading on: deadlines, plan, what moves."""
        if old == new:
            return
        was, now = _prefix(old), _prefix(new)
        self.runs_more += (now is not None) - (was is not None)
        self.open_more += _is_open(now) - _is_open(was)
        self.cold_more += _is_cold(now) - _is_cold(was)
        if _is_live(was) and not _is_live(now):
            self._changes.update((key, None) for key, _ in entries(self._scan, run))
        for key in _marks(run, was).keys() - _marks(run, now).keys():
            self._changes[key] = None
        for key in _marks(run, now).keys() - _marks(run, was).keys():
            self._changes[key] = seal(key, _MARK)
        for prefix, by in ((was, -1), (now, 1)):
            if prefix is not None and prefix.plan:
                self._refs[prefix.plan] = self._refs.get(prefix.plan, 0) + by

    def _count_plans(self) -> None:
        """Plans as they came, and who names them now: runs, and longer plans."""
        longer: dict[bytes, int] = {}
        old = self._plans_of([*self._plans, *self._refs])
        for digest, packed in self._plans.items():
            before = old[digest].packed
            if bool(before) == (packed is not None):
                continue  # neither new nor gone
            shorter = before_of(packed or before)
            if shorter:
                longer[shorter] = longer.get(shorter, 0) + (1 if packed is not None else -1)
        old.update(self._plans_of([digest for digest in longer if digest not in old]))
        for digest, was in old.items():
            packed = self._plans.get(digest, was.packed)
            now = PlanRecord(
                packed or b"",
                was.refs + self._refs.get(digest, 0),
                was.longer + longer.get(digest, 0),
            )
            if now != was:
                key = PLAN + digest
                self._changes[key] = None if now == _NO_PLAN else seal_record(key, now)

    def _plans_of(self, digests: Sequence[bytes]) -> dict[bytes, PlanRecord]:
        keys = [PLAN + digest for digest in dict.fromkeys(digests)]
        return {
            key[1:]: _NO_PLAN if sealed is None else read_plan(key, sealed)
            for key, sealed in zip(keys, self._read(keys) if keys else [], strict=True)
        }


def _prefix(header: bytes) -> Prefix | None:
    try:
        return read_prefix(header) if header else None
    except StateCorrupt as error:
        raise StoreLostError(str(error)) from error


def _is_open(prefix: Prefix | None) -> int:
    return int(prefix is not None and prefix.kind in {KIND_RUN, KIND_COLD})


def _is_live(prefix: Prefix | None) -> bool:
    return prefix is not None and prefix.kind == KIND_RUN


def _is_cold(prefix: Prefix | None) -> int:
    return int(prefix is not None and prefix.kind == KIND_COLD)


def _marks(run: bytes, prefix: Prefix | None) -> dict[bytes, None]:
    marks: dict[bytes, None] = {}
    if prefix is None:
        return marks
    if prefix.log_due != NEVER:
        marks[due_key(LOG_DUE, prefix.log_due, run)] = None
    if prefix.live_due != NEVER:
        marks[due_key(LIVE_DUE, prefix.live_due, run)] = None
    if prefix.flying or prefix.held or prefix.wanted:
        marks[MOVING + run] = None
    return marks
