"""Deliberate bugs of runs at rest: each must be found by one of the folds of `archiving`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from tests.simulation.mutants import Mutant, replaced

from dalsegno.streams.core import cold_runs
from dalsegno.streams.core.cold import Cold, cold_of, may_rest
from dalsegno.streams.core.cold_runs import ColdRuns
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import NEVER, Run


@contextmanager
def after(owner: Any, name: str, then: Callable[..., None]) -> Iterator[None]:
    """The right thing, and something behind it."""
    right = getattr(owner, name)

    def wrong(self: Any, *rest: Any) -> Any:
        found = right(self, *rest)
        then(self, *rest)
        return found

    with patch.object(owner, name, wrong):
        yield


def parts_are_not_written_again() -> AbstractContextManager[None]:
    """What came back is in memory alone."""
    return after(Runs, "put_back", lambda self, *_: self._back.clear())


def what_waited_comes_twice_after_a_restart() -> AbstractContextManager[None]:
    """The part with what waited stays."""
    return after(Runs, "put_back", lambda self, cold, _: self._dirty[cold.id].clear())


def parts_stay_behind() -> AbstractContextManager[None]:
    """A run that leaves leaves its parts."""
    return after(Runs, "archive", lambda self, *_: self._gone.clear())


def plans_are_dropped() -> AbstractContextManager[None]:
    """Nobody names the plan of a run that is away."""
    return after(Runs, "archive", lambda self, run, _: self._plans.drop(run.entry.plan.digest))


def a_run_that_is_away_has_ended() -> AbstractContextManager[None]:
    """It is not counted as open."""

    def archived(self: Runs, *_: Any) -> None:
        self.open -= 1

    return after(Runs, "archive", archived)


def deadlines_sleep() -> AbstractContextManager[None]:
    """Nothing is due of a run that is away."""
    return replaced(Cold, "log_due", property(lambda self: NEVER))


def wanted_is_forgotten() -> AbstractContextManager[None]:
    """A restart does not know who is to come back."""
    return after(Runs, "_moves", lambda self, *_: self.wanted.clear())


@contextmanager
def changed_runs_leave() -> Iterator[None]:
    """A run leaves whatever it has become since it was chosen, and returns as it was chosen."""

    def leaves(self: ColdRuns, run_id: str, digest: bytes, segment: str) -> bool:
        run = self._runs.get(run_id)
        if isinstance(run, Run) and may_rest(run):
            self._runs.archive(run, cold_of(run, segment, b"", digest, self._now.log_ms))
        return True

    with patch.object(ColdRuns, "_leaves", leaves):
        yield


def anything_comes_back() -> AbstractContextManager[None]:
    """What is brought is believed."""
    return replaced(cold_runs, "_fault", lambda *_: None)


def the_last_comes_first() -> AbstractContextManager[None]:
    """What waited is applied the other way round."""
    right = ColdRuns._catch_up

    def wrong(self: ColdRuns, cold: Cold) -> None:
        cold.waiting = list(reversed(cold.waiting or []))
        right(self, cold)

    return replaced(ColdRuns, "_catch_up", wrong)


MUTANTS = (
    Mutant("parts are not written again", parts_are_not_written_again),
    Mutant("what waited comes twice after a restart", what_waited_comes_twice_after_a_restart),
    Mutant("parts stay behind", parts_stay_behind),
    Mutant("plans are dropped", plans_are_dropped),
    Mutant("a run that is away has ended", a_run_that_is_away_has_ended),
    Mutant("deadlines sleep", deadlines_sleep),
    Mutant("wanted is forgotten", wanted_is_forgotten),
    Mutant("changed runs leave", changed_runs_leave),
    Mutant("anything comes back", anything_comes_back),
    Mutant("the last comes first", the_last_comes_first),
)
