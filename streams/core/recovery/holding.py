"""Steps that are held back, by what holds them, each line in recovery order.

A step is `held` when it may go by its plan and something else says "not yet": a fault point whose
quota is not there, a freeze, the pace of a mass recovery. Which of them is in the step's row
(`Repair.by`), so the lines here are derived from the rows and are part of no checkpoint but for
the balance of each: a restored partition has the same lines, and so the same order.

    by = holds.line("point:payments")       # the name says what kind of barrier it is
    holds.first(by, now_ms)                 # (run id, place) that would go next, or None
    holds.take(by, now_ms)                  # it goes: the caller releases it, or it is held anew
    holds.waiting(by)                       # how many steps wait: the demand that is reported

Rows are put in and taken out where a unit is adopted; nobody else has to tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from dalsegno.streams.core.recovery.order import Standing, WaitOrder

POINT: Final = "point:"
FROZEN: Final = "frozen:"
PACED: Final = "paced"


class Repair(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What recovery knows of a step until it completes. In the step's row.

    `by`: what holds it now, or empty. `rank_ms`, `usual_ms`: as estimated when it was first hurt or
    held; the order goes by these, so that a restored partition has the same one. `hurt`: an attempt
    of it failed or was lost; a step can be held without. `supplies`: it had completed, and is run
    again for a field that another step misses.
    """

    by: str = ""
    rank_ms: int = 0
    usual_ms: int = 0
    hurt: bool = False
    supplies: bool = False


class Holds:
    """The lines of a partition, by what holds. Not thread-safe."""

    __slots__ = ("_balances", "_lines", "_where")

    def __init__(self) -> None:
        self._lines: dict[str, WaitOrder] = {}
        self._balances: dict[str, int] = {}
        # Lines that a run stands in: a run waits in few, and its end must not look through all.
        self._where: dict[str, dict[str, None]] = {}

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self._lines)

    def put(self, by: str, run_id: str, place: int, repair: Repair, standing: Standing) -> None:
        """A step is held."""
        line = self._lines.get(by)
        if line is None:
            line = self._lines[by] = WaitOrder(self._balances.pop(by, 0))
        line.put(run_id, place, rank_ms=repair.rank_ms, usual_ms=repair.usual_ms, standing=standing)
        self._where.setdefault(run_id, {})[by] = None

    def remove(self, by: str, run_id: str, place: int) -> None:
        """It is held no more."""
        line = self._lines.get(by)
        if line is not None and line.remove(run_id, place):
            self._left(by, line, run_id)

    def restand(self, run_id: str, standing: Standing) -> None:
        """Less work remains of the run than before."""
        for by in self._where.get(run_id, ()):
            self._lines[by].restand(run_id, standing)

    def drop(self, run_id: str) -> None:
        """The run has ended, or was put aside: nothing of it is held."""
        for by in self._where.pop(run_id, ()):
            line = self._lines[by]
            line.drop(run_id)
            self._close(by, line)

    def first(self, by: str, now_ms: int) -> tuple[str, int] | None:
        """Which step of a line would go next: (run id, place), or None."""
        line = self._lines.get(by)
        return None if line is None else line.first(now_ms)

    def take(self, by: str, now_ms: int) -> tuple[str, int] | None:
        """Takes the next step out of a line and charges its share."""
        line = self._lines.get(by)
        if line is None:
            return None
        found = line.take(now_ms)
        if found is not None:
            self._left(by, line, found[0])
        return found

    def waiting(self, by: str) -> int:
        """How many steps wait in a line."""
        line = self._lines.get(by)
        return 0 if line is None else len(line)

    def line(self, by: str) -> WaitOrder | None:
        """A line to look at, not to change."""
        return self._lines.get(by)

    def lines(self) -> dict[str, int]:
        """How many steps wait in each line, by name."""
        return {by: len(line) for by, line in sorted(self._lines.items())}

    def balances(self) -> list[tuple[str, int]]:
        """The balance of each line: what a checkpoint keeps beside the rows."""
        found = {by: line.balance_ms for by, line in self._lines.items() if line.balance_ms}
        return sorted(found.items())

    def load_balances(self, balances: Iterable[tuple[str, int]]) -> None:
        """Before the rows of a restored partition are put in."""
        self._balances = dict(balances)

    def _left(self, by: str, line: WaitOrder, run_id: str) -> None:
        if not line.holds_run(run_id):
            where = self._where[run_id]
            del where[by]
            if not where:
                del self._where[run_id]
        self._close(by, line)

    def _close(self, by: str, line: WaitOrder) -> None:
        # An empty line forgets its balance: the next outage begins afresh.
        if not len(line):
            del self._lines[by]
