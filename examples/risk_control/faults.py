"""What goes wrong during the demo, and when: as shares of the applications started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Fault(NamedTuple):
    """`at` is the share of applications started (0 to 1) at which `begin` is called.

    `end` undoes it `lasts_s` seconds later.
    """

    at: float
    name: str
    begin: Callable[[], None]
    lasts_s: float
    end: Callable[[], None]


class Timeline:
    """Begins and ends faults as the demo goes on; says what it did."""

    def __init__(self, faults: list[Fault]) -> None:
        self._waiting = sorted(faults, key=lambda fault: fault.at)
        self._open: list[tuple[float, Fault]] = []
        self.told: list[str] = []

    def step(self, share: float, now_s: float) -> None:
        """Do what is due when `share` of the applications has started, at monotonic `now_s`."""
        while self._waiting and self._waiting[0].at <= share:
            fault = self._waiting.pop(0)
            fault.begin()
            self._open.append((now_s + fault.lasts_s, fault))
            self.told.append(fault.name)
        for due, fault in self._due(now_s):
            fault.end()
            self._open.remove((due, fault))
            self.told.append(f"{fault.name}: over")

    def _due(self, now_s: float) -> Iterator[tuple[float, Fault]]:
        yield from [entry for entry in self._open if entry[0] <= now_s]

    @property
    def done(self) -> bool:
        return not self._waiting and not self._open
