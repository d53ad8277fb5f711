"""Runs one seed and, when it breaks a promise, says how to see it again."""

from __future__ import annotations

from tests.simulation.promises import BrokenPromiseError
from tests.simulation.world import TAIL, World


class FailedSeedError(AssertionError):
    """A seed broke a promise: the text holds the seed, the command and the end of the trace."""


def run_seed(seed: int, *, large: bool = False) -> str:
    """The digest of the seed's trace. Raises `FailedSeedError`."""
    world = World(seed, large=large)
    try:
        return world.run()
    except BrokenPromiseError as broken:
        raise FailedSeedError(report(world, str(broken), large=large)) from broken
    except Exception as error:
        raise FailedSeedError(report(world, repr(error), large=large)) from error


def report(world: World, what: str, *, large: bool) -> str:
    size = " --large" if large else ""
    lines = [" ".join(map(str, line)) for line in world.tail]
    return "\n".join(
        (
            f"seed {world.seed}: {what}",
            f"repeat: python -m tests.simulation.soak --seed {world.seed} --count 1{size}",
            f"the last {min(TAIL, len(lines))} lines of the trace (virtual ms, what):",
            *lines,
        )
    )
