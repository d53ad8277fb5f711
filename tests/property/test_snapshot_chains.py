"""A chain's answer equals the fold's for every version that it keeps, whatever happened to it."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from tests.property import digest_of_log
from tests.property.test_spilling import folded

from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.snapshots import recorder
from dalsegno.storage.snapshots.chain import readable
from dalsegno.storage.snapshots.errors import SnapshotCorrupt
from dalsegno.storage.snapshots.pace import Pace
from dalsegno.storage.snapshots.recorder import Recorder
from dalsegno.storage.snapshots.store import LINK
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.versions import Made, VersionView, view_past

MANY = tuple(f"r{n}" for n in range(12))
Views = dict[tuple[str, int, int], VersionView]
"""By run id, offset of its start, and run version: an id may be used by several runs in turn."""


def bare(view: VersionView) -> dict[str, object]:
    """What must be equal: all but whence it was had, and when, which a state does not know."""
    shown = {name: getattr(view, name) for name in VersionView.__struct_fields__}
    return {name: value for name, value in shown.items() if name not in {"source", "at_ms"}}


class Fold:
    """The fold of a log in memory: every version of every run as it was when it was made."""

    def __init__(self, log: list[Record]) -> None:
        self.views: Views = {}
        self.at_ms: dict[tuple[str, int, int], int] = {}
        self.began: dict[str, int] = {}
        self.lives: dict[str, list[int]] = {}
        partition = Partition(3)
        partition.versions.keep()
        for record in log:
            partition.apply(record)
            made = partition.versions.drain()
            for each in made:
                if each.number == 1:
                    self.began[each.run_id] = each.offset
                at = each.run_id, self.began[each.run_id], each.number
                self.at_ms[at] = each.at_ms
                view = partition.versions.now(each.run_id)
                if view is not None and view.run_version == each.number:
                    self.views[at] = view


class Owner:
    """What an engine does with a partition's versions, at random moments."""

    def __init__(self, rng: random.Random, keep: int) -> None:
        self.rng = rng
        self.keep = keep
        self.table = MemoryTable()
        self.changelog: list[tuple[bytes, bytes | None]] = []
        self.began: dict[str, int] = {}
        self.corrupted = self.crashes = self.pruned = self.links = self.gaps = 0
        self._open()

    def _open(self) -> None:
        self.store = WarmStore(self.table, "cluster/topic/3")
        place = self.store.place
        first = 0 if place is None else place.position
        self.store.put(dict(self.changelog[first:]), Place(len(self.changelog), 0))
        self.partition = Partition.open(3, self.store)
        self.partition.versions.keep()
        self.pace = Pace()
        self.recorder = Recorder(self.store.chains, self.store.load, self.pace, keep=self.keep)
        self.noted: list[Made] = []

    def checkpoint(self) -> None:
        self.noted += self.partition.versions.drain()
        parts = self.partition.capture()
        self.changelog += parts
        self.store.put(dict(parts), Place(len(self.changelog), 0))
        self.recorder.note(self.noted)
        self.noted = []
        residence = self.partition.residence
        assert residence is not None
        residence.stored(residence.captures, 0)
        residence.leave(self.rng.choice((0, 1 << 40)), 1 << 40)

    def write(self) -> None:
        self.pace.every = self.rng.choice((1, 1, 2, 5))
        if self.rng.random() < 0.2:
            self.recorder.everything()
        self.recorder.write(self.rng.choice((0.0, 10.0)))
        told = self.recorder.told()
        assert told.broken == []
        self.pruned += told.pruned
        self.links += sum(told.links.values())

    def crash(self) -> None:
        self.crashes += 1
        self.table = self.table.after_crash()
        if self.rng.random() < 0.2:
            self.table = MemoryTable()
        self._open()

    def corrupt(self) -> None:
        """A link is cut, changed, or another's, or is gone."""
        links = self.table.scan(LINK, LINK + b"\xff", 1_000)
        if not links:
            return
        self.corrupted += 1
        key, link = self.rng.choice(links)
        place = self.rng.randrange(len(link))
        bad = (
            None,
            link[:place],
            link + b"x",
            self.rng.choice(links)[1],
            link[:place] + bytes([link[place] ^ 1 << self.rng.randrange(8)]) + link[place + 1 :],
        )
        self.table.write({key: self.rng.choice(bad)})

    def look(self, run_id: str, run_version: int) -> VersionView | None:
        whose = self.partition.versions.whose(run_id)
        if whose is None:
            return None
        later = [*self.recorder.noted(run_id), *self.partition.versions.of(run_id)]
        found = self.recorder.look(whose, run_version, later)
        assert self.corrupted or not found.faults, "nothing was damaged but by us"
        return None if found.past is None else view_past(found.past, whose)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_of_log, "RUNS", MANY)
    monkeypatch.setattr(recorder, "RUNS_AT_ONCE", 3)
    monkeypatch.setattr(recorder, "CHAINS_BYTES_MAX", 3_000)


def answers(owner: Owner, fold: Fold, began: Mapping[str, int]) -> tuple[int, int]:
    """Every version of the live runs: how many the chains know, and how many they do not."""
    known = unknown = 0
    for run_id in MANY:
        whose = owner.partition.versions.whose(run_id)
        if whose is None:
            continue
        for version in range(1, whose.newest + 1):
            at = run_id, began[run_id], version
            found = owner.look(run_id, version)
            if found is None:
                unknown += 1
                continue
            known += 1
            assert found.at_ms == fold.at_ms[at], at
            if at in fold.views:
                assert bare(found) == bare(fold.views[at]), at
        assert owner.look(run_id, whose.newest + 1) is None
    return known, unknown


def play(seed: int, *, crashes: float, corruption: float, keep: int) -> tuple[Owner, int, int]:
    folding = folded(seed, 1_200)
    fold, rng = Fold(folding.log), random.Random(seed)
    owner, began = Owner(rng, keep), dict[str, int]()
    known = unknown = at = 0
    starts = {(run, offset) for run, offset, version in fold.at_ms if version == 1}
    while at < len(folding.log):
        owner.partition.apply(folding.log[at])
        began.update((run, at) for run in MANY if (run, at) in starts)
        at += 1
        if rng.random() < 0.2:
            owner.checkpoint()
            if rng.random() < 0.7:
                owner.write()
        if rng.random() < 0.1:
            owner.store.flush()
        if rng.random() < corruption:
            owner.corrupt()
        if rng.random() < 0.02:
            more = answers(owner, fold, began)
            known, unknown = known + more[0], unknown + more[1]
        if rng.random() < crashes:
            owner.crash()
            at = owner.partition.position
    owner.checkpoint()
    owner.write()
    for run_id in MANY:
        links = owner.store.chains.links(run_id)
        assert len(links) <= 2 * keep + 1
        whose = owner.partition.versions.whose(run_id)
        assert not links or whose, "chains go with their runs"
        if whose and not owner.corrupted:
            places, faults = readable(run_id, list(links.values()), whose.began_ms)
            assert (len(places), faults) == (len(links), []), "every link that is kept restores"
    return owner, known, unknown


@pytest.mark.parametrize("seed", range(4))
def test_a_chain_that_nothing_happens_to_knows_every_version(seed: int) -> None:
    owner, known, unknown = play(seed, crashes=0, corruption=0, keep=10_000)
    assert unknown == 0
    assert known > 200
    assert owner.links > 50


@pytest.mark.parametrize("seed", range(3))
def test_pruned_chains_know_all_that_they_kept(seed: int) -> None:
    owner, known, unknown = play(seed, crashes=0, corruption=0, keep=seed + 1)
    assert owner.pruned > 0
    assert known > 100
    assert unknown > 0


@pytest.mark.parametrize("seed", range(4))
def test_a_chain_goes_on_behind_what_died_with_an_engine(seed: int) -> None:
    owner, known, unknown = play(seed, crashes=0.02, corruption=0, keep=10_000)
    assert owner.crashes > 5
    assert known > 50
    assert unknown > 0


@pytest.mark.parametrize("seed", range(6))
def test_pruned_damaged_and_interrupted_chains_never_say_another_thing(seed: int) -> None:
    keep = random.Random(seed).choice((1, 2, 5))
    owner, known, unknown = play(seed, crashes=0.01, corruption=0.03, keep=keep)
    assert known > 0
    assert unknown > 0
    assert min(owner.corrupted, owner.crashes) > 0


def kept_as_they_are(_run_id: str, links: list[bytes], keep: int) -> list[bytes]:
    return links[-keep:]


BUGS = {
    "steps are never settled": ("dalsegno.storage.snapshots.walk.move", lambda _was, _moved: None),
    "a version is the whole link": (
        "dalsegno.storage.snapshots.walk.first_of",
        lambda operations, _count: operations,
    ),
    "chains stay behind": ("dalsegno.storage.warm_merge._is_live", lambda _prefix: True),
    "a base goes that is needed": (
        "dalsegno.storage.snapshots.extending.prune",
        kept_as_they_are,
    ),
    "merge rules are forgotten": (
        "dalsegno.streams.core.context_change.ContextChange.operations",
        lambda change: change.source,
    ),
    "what the store says is settled is not asked": (
        "dalsegno.storage.snapshots.extending.standing",
        lambda _rows: {},
    ),
    "a gap is not seen": (
        "dalsegno.storage.snapshots.recorder.Recorder._to_be_read",
        lambda _recorder, _chain, _first: False,
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_deliberate_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        with monkeypatch.context() as patches:
            patches.setattr(*BUGS[bug])
            found = finds(seed)
        if found:
            assert not finds(seed), "else it is not the bug that was found"
            return
    raise AssertionError(f"not found: {bug}")


def finds(seed: int) -> bool:
    """Whether what the chains say is something else than the fold says, or cannot be read."""
    try:
        play(seed, crashes=0.01 * (seed % 2), corruption=0, keep=1 + seed)
    except (AssertionError, SnapshotCorrupt):
        return True
    return False
