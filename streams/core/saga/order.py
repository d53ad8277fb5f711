"""Who holds whom back while a run is taken back, kept up to date one step at a time.

A step is *clear* when it is not busy (has nothing left to take back) and nothing holds it back. It
is held back by each direct dependent that is not clear. `planning.held_back` says the same from
scratch; both directions here cost the edges whose count changes, and nothing recurses.
"""

from __future__ import annotations

from typing import Protocol

from dalsegno.streams.core.plan import CompiledPlan


class Holds(Protocol):
    """Where the counts are kept."""

    def held(self, place: int) -> int:
        """How many direct dependents hold the step back."""
        ...

    def add(self, place: int, by: int) -> None:
        """Changes the count of a step."""
        ...

    def busy(self, place: int) -> bool:
        """Whether the step has something left to take back."""
        ...


def let_go(plan: CompiledPlan, place: int, holds: Holds) -> list[int]:
    """The step has become clear: the steps that may be taken back from now on."""
    free: list[int] = []
    clear = [place]
    while clear:
        for need in plan.needs[clear.pop()]:
            holds.add(need, -1)
            if holds.held(need) == 0:
                (free if holds.busy(need) else clear).append(need)
    return free


def hold_again(plan: CompiledPlan, place: int, holds: Holds) -> None:
    """The step was clear and has become busy after all: what it needs waits for it again.

    Of that, what is under way already stays under way.
    """
    back = [place]
    while back:
        for need in plan.needs[back.pop()]:
            if holds.held(need) == 0 and not holds.busy(need):
                back.append(need)
            holds.add(need, 1)
