"""Deliberate bugs of the warm tier. The simulation must find every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from tests.simulation.mutants import Mutant, replaced
from tests.simulation.tiers import Disks, Lab

from dalsegno.storage.warm import Place, WarmStore
from dalsegno.storage.warm_merge import Merge
from dalsegno.streams.core.plan_store import PlanStore
from dalsegno.streams.core.residency import Residency
from dalsegno.streams.core.timers import Timers


@contextmanager
def leaves_before_it_is_stored() -> Iterator[None]:
    """A run may leave as soon as it is captured."""
    right = Residency.captured

    def captured(self: Residency, changed: Any) -> None:
        right(self, changed)
        self._pinned.clear()

    with patch.object(Residency, "captured", captured):
        yield


@contextmanager
def removed_runs_are_found_again() -> Iterator[None]:
    """What was removed is asked for until the store has forgotten it too."""
    right = Residency.removed

    def removed(self: Residency, run_id: str) -> None:
        right(self, run_id)
        self._gone.clear()

    with patch.object(Residency, "removed", removed):
        yield


def changed_runs_leave() -> AbstractContextManager[None]:
    """Runs leave though they have changed since they were stored."""
    right = Residency.leaving
    return replaced(
        Residency,
        "leaving",
        lambda self, wanted, dirty, until: right(self, wanted, frozenset(), until),
    )


@contextmanager
def deadlines_are_lost_with_the_run() -> Iterator[None]:
    """A run that leaves takes its deadlines along."""

    def left(self: Timers, run_id: str, due_ms: int) -> None:
        self._queued.pop(run_id, None)

    with patch.object(Timers, "left", left):
        yield


@contextmanager
def frontier_is_the_end() -> Iterator[None]:
    """After a restart only the first window of deadlines is known."""
    right = Timers._widen

    def widen(self: Timers) -> None:
        right(self)
        self._frontier = (1 << 62, "")

    with patch.object(Timers, "_widen", widen):
        yield


@contextmanager
def place_runs_ahead() -> Iterator[None]:
    """The place is put in before what it stands for."""
    right = Disks.keep

    def keep(self: Disks, session: Any, parts: Any, to: Place) -> None:
        right(self, session, parts, to)
        lab = self.labs[id(session.partition)]
        lab.store.put({}, to)
        lab.store.flush()

    with patch.object(Disks, "keep", keep):
        yield


def any_age_will_do() -> AbstractContextManager[None]:
    """A database is read on from however long it was away."""
    return replaced(Disks, "too_old", lambda self, place: False)


@contextmanager
def nothing_is_remembered_as_nothing() -> Iterator[None]:
    """What was not there before a batch is taken as not there after runs have left."""
    right = Residency.leaving

    def leaving(self: Residency, *args: Any) -> list[str]:
        nothing = self._nothing
        found = right(self, *args)
        self._nothing = {*nothing, *found}
        return found

    with patch.object(Residency, "leaving", leaving):
        yield


def moving_runs_are_not_loaded() -> AbstractContextManager[None]:
    """Attempts in flight are forgotten by a restart."""
    return replaced(WarmStore, "moving", lambda self: [])


@contextmanager
def deletions_are_not_put_in() -> Iterator[None]:
    """What was deleted stays in the store."""
    right = WarmStore.put

    def put(self: WarmStore, parts: Any, place: Place | None = None) -> None:
        right(self, {key: value for key, value in parts.items() if value is not None}, place)

    with patch.object(WarmStore, "put", put):
        yield


@contextmanager
def plans_are_counted_once() -> Iterator[None]:
    """Counts of who names a plan are not kept beside the runs."""
    right = Merge._moved

    def moved(self: Merge, run: bytes, old: bytes, new: bytes) -> None:
        right(self, run, old, new)
        self._refs = dict.fromkeys(self._refs, 1)

    with patch.object(Merge, "_moved", moved):
        yield


@contextmanager
def plans_are_forgotten_too_early() -> Iterator[None]:
    """A plan whose counts the store does not know yet is forgotten."""
    right = PlanStore.stored

    def stored(self: PlanStore, number: int, followed: Any) -> None:
        self._touched.clear()
        right(self, number, followed)

    with patch.object(PlanStore, "stored", stored):
        yield


@contextmanager
def pending_is_dropped() -> Iterator[None]:
    """A checkpoint that waits to be put in is replaced by the next one."""
    right = Disks.keep

    def keep(self: Disks, session: Any, parts: Any, to: Place) -> None:
        lab: Lab = self.labs[id(session.partition)]
        lab.pending = {}
        right(self, session, parts, to)

    with patch.object(Disks, "keep", keep):
        yield


# Found by the simulation: its schedule is another one, or a promise is broken.
TIER_MUTANTS = (
    Mutant("runs leave before they are stored", leaves_before_it_is_stored),
    Mutant("changed runs leave", changed_runs_leave),
    Mutant("deadlines are lost with the run", deadlines_are_lost_with_the_run),
    Mutant("the place runs ahead", place_runs_ahead),
    Mutant("any age will do", any_age_will_do),
    Mutant("nothing stays nothing", nothing_is_remembered_as_nothing),
    Mutant("moving runs are not loaded", moving_runs_are_not_loaded),
    Mutant("a pending checkpoint is dropped", pending_is_dropped),
)

# Found by the spilled folds of the property tests, which have more runs, stubs and plans.
SPILL_MUTANTS = (
    Mutant("removed runs are found again", removed_runs_are_found_again),
    Mutant("only the first window of deadlines", frontier_is_the_end),
    Mutant("deletions are not put in", deletions_are_not_put_in),
    Mutant("plans are counted once", plans_are_counted_once),
    Mutant("plans are forgotten too early", plans_are_forgotten_too_early),
)
