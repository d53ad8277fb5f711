"""How many seeds it takes until a deliberate bug breaks a promise."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.mutants import Mutant
from tests.simulation.promises import BrokenPromiseError, FoldRaisedError


def seeds_to_find(
    mutant: Mutant,
    run: Callable[[int], object],
    found_by: type[AssertionError] = BrokenPromiseError,
) -> int | None:
    """`run` runs the world of a seed, and raises `found_by` where something is wrong. None if the
    bug is not found within its bound.

    Raises what breaks without the bug in the world that found it: then it was not the bug.
    """
    seed = _first_broken(mutant, run, found_by)
    if seed is None:
        return None
    run(seed)
    return seed + 1


def _first_broken(
    mutant: Mutant, run: Callable[[int], object], found_by: type[AssertionError]
) -> int | None:
    with mutant.bug():
        for seed in range(mutant.seeds):
            try:
                run(seed)
            except FoldRaisedError:
                # Then the bug is broken itself, and shows nothing.
                raise
            except found_by:
                return seed
    return None
