"""Runs one seed and, when it breaks a promise, says how to see it again."""

from __future__ import annotations

from typing import Final

from tests.simulation.combined_world import CombinedWorld
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.saga_world import SagaWorld
from tests.simulation.world import TAIL, World

WORLDS: Final[dict[str, type[World]]] = {
    "spine": World,
    "sagas": SagaWorld,
    "combined": CombinedWorld,
}
SPINE: Final = "spine"


class FailedSeedError(AssertionError):
    """A seed broke a promise: the text holds the seed, the command and the end of the trace."""


def run_seed(seed: int, *, large: bool = False, world: str = SPINE) -> str:
    """The digest of the seed's trace. Raises `FailedSeedError`."""
    return run_world(WORLDS[world](seed, large=large), large=large)


def run_world(world: World, *, large: bool = False) -> str:
    """As `run_seed`, for a world that was made already."""
    try:
        return world.run()
    except BrokenPromiseError as broken:
        raise FailedSeedError(report(world, str(broken), large=large)) from broken
    except Exception as error:
        raise FailedSeedError(report(world, repr(error), large=large)) from error


def report(made: World, what: str, *, large: bool) -> str:
    size = " --large" if large else ""
    kind = next(name for name, world in WORLDS.items() if world is type(made))
    which = "" if kind == SPINE else f" --world {kind}"
    lines = [" ".join(map(str, line)) for line in made.tail]
    return "\n".join(
        (
            f"seed {made.seed}: {what}",
            f"repeat: python -m tests.simulation.soak --seed {made.seed} --count 1{size}{which}",
            f"the last {min(TAIL, len(lines))} lines of the trace (virtual ms, what):",
            *lines,
        )
    )
