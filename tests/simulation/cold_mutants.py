"""Deliberate bugs of runs that leave for the archive and come back. Each is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from tests.property.archive_mutants import (
    changed_runs_leave,
    parts_are_not_written_again,
    parts_stay_behind,
    the_last_comes_first,
    wanted_is_forgotten,
    what_waited_comes_twice_after_a_restart,
)
from tests.simulation.mutants import Mutant, replaced

from dalsegno.storage.archive import sweep
from dalsegno.storage.archive.archive import Archive, offsets_of
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.streams.agents.archive_restore import Restorer
from dalsegno.streams.agents.archive_states import StateArchiver
from dalsegno.streams.core import cold_runs
from dalsegno.streams.core.cold import Cold
from dalsegno.streams.core.cold_runs import ColdRuns
from dalsegno.streams.engine.state_segments import States


@contextmanager
def told_before_it_is_put() -> Iterator[None]:
    """The log is told of a segment of states that the store may not have."""
    right = Archive.put

    def put(self: Archive, segment: bytes) -> Any:
        manifest = right(Archive(MemoryObjects(), "nowhere"), segment)
        return manifest if manifest.run_ids else right(self, segment)

    with patch.object(Archive, "put", put):
        yield


def what_comes_is_believed() -> AbstractContextManager[None]:
    """Neither the restorer nor the fold compares what the store gave."""

    @contextmanager
    def both() -> Iterator[None]:
        def parts(self: States, segment: str, run_id: str, digest: bytes) -> bytes:
            manifest, index = self._of(segment)
            entry = index.run(run_id)
            assert entry is not None
            return self._archive.read(manifest, entry)[:-1] + b"\0"

        with (
            patch.object(States, "parts", parts),
            patch.object(cold_runs, "_fault", lambda *_: None),
        ):
            yield

    return both()


@contextmanager
def given_up_after_a_failure() -> Iterator[None]:
    """A run that could not be fetched once is not fetched again."""

    def later(self: Restorer, at: Any) -> None:
        at.next_s = 1e18

    with patch.object(Restorer, "_later", later):
        yield


def one_word_is_enough() -> AbstractContextManager[None]:
    """A restore whose word was lost counts as said."""
    right = Restorer._fetch

    async def fetch(self: Restorer, task: Any, run_id: str, head: Any, at: Any) -> None:
        await right(self, task, run_id, head, at)
        if at.said < 0:
            at.said = 1 << 60

    return replaced(Restorer, "_fetch", fetch)


def what_waits_is_dropped() -> AbstractContextManager[None]:
    """Events that came for a run that was away are not applied."""
    right = ColdRuns._catch_up

    def wrong(self: ColdRuns, cold: Cold) -> None:
        cold.waiting = None
        right(self, cold)

    return replaced(ColdRuns, "_catch_up", wrong)


@contextmanager
def states_are_swept() -> Iterator[None]:
    """The sweep takes segments of states for segments of events that nobody needs."""
    right = sweep.superfluous

    def superfluous(archive: Archive, partition: int, archived_to: int, age_ms: int) -> Any:
        found = right(archive, partition, archived_to, age_ms)
        more = tuple(n for n in archive.held(partition).manifests if offsets_of(n) is None)
        return found._replace(superseded=(*found.superseded, *more))

    with patch("dalsegno.streams.agents.archive_sweep.superfluous", superfluous):
        yield


@contextmanager
def digests_of_another() -> Iterator[None]:
    """A segment is confirmed with the digests of the runs beside."""
    right = StateArchiver._send

    async def send(self: StateArchiver, task: Any, fold: Any, walk: Any) -> None:
        chosen = walk.chosen
        parts = [each.parts for each in chosen]
        walk.chosen = [
            each._replace(parts=other)
            for each, other in zip(chosen, parts[1:] + parts[:1], strict=True)
        ]
        await right(self, task, fold, walk)

    with patch.object(StateArchiver, "_send", send):
        yield


COLD_MUTANTS = (
    Mutant("changed runs leave", changed_runs_leave),
    Mutant("told before it is put", told_before_it_is_put),
    Mutant("what comes is believed", what_comes_is_believed),
    Mutant("given up after a failure", given_up_after_a_failure),
    Mutant("one word is enough", one_word_is_enough),
    Mutant("parts are not written again", parts_are_not_written_again),
    Mutant("parts stay behind", parts_stay_behind),
    Mutant("what waited comes twice", what_waited_comes_twice_after_a_restart),
    Mutant("wanted is forgotten", wanted_is_forgotten),
    Mutant("what waits is dropped", what_waits_is_dropped),
    Mutant("the last comes first", the_last_comes_first),
    Mutant("states are swept", states_are_swept),
    Mutant("digests of another", digests_of_another),
)
