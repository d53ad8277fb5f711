"""Deliberate bugs of recovery: each must be found by the world of mass failures."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tests.simulation.mutants import Mutant, replaced

from dalsegno.streams.core import releasing, runs
from dalsegno.streams.core.recovery import adopting, barriers
from dalsegno.streams.core.recovery.freezing import Freeze, Freezes
from dalsegno.streams.core.recovery.holding import Holds
from dalsegno.streams.core.recovery.order import WaitOrder
from dalsegno.streams.core.recovery.state import Recovery

Bug = AbstractContextManager[Any]


def freeze_forgotten_at_the_second_scope() -> Bug:
    """Only the first scope that covers a step is asked."""

    def holding(self: Freezes, flow: str, depends_on: Any, passes: str = "") -> str:
        for line, freeze in self._scopes.items():
            if freeze.covers(flow, depends_on):
                return "" if passes == line else line
        return ""

    return replaced(Freezes, "holding", holding)


def freeze_of_dependencies_ignored() -> Bug:
    """A scope of one dependency covers every step of its flow, or none."""
    return replaced(
        Freeze,
        "covers",
        lambda self, flow, depends_on: not self.fault_point and self.flow in {"", flow},
    )


def freeze_lost_in_a_restore() -> Bug:
    """Freezes are not part of the checkpoint."""
    right = Recovery.pack

    def pack(self: Recovery) -> Any:
        part = right(self)
        return type(part)([], part.pace, part.balances)

    return replaced(Recovery, "pack", pack)


def lines_lost_in_a_restore() -> Bug:
    """The lines of a restored partition are empty."""
    return replaced(runs, "put_in_lines", lambda recovery, run: None)


def balance_lost_in_a_restore() -> Bug:
    """A restored line begins with the kept share again."""
    return replaced(Holds, "balances", lambda self: [])


def width_ignored() -> Bug:
    """Everything that is lost goes out again at once."""
    return replaced(barriers, "_in_pace", lambda draft: True)


def width_not_given_back() -> Bug:
    """An attempt that ends stays counted, so the width fills up for ever."""
    right = adopting.count_pace

    def count_pace(recovery: Recovery, log_ms: int, before: Any, after: Any) -> None:
        if after.recovering > before.recovering:
            right(recovery, log_ms, before, after)

    return replaced(runs, "count_pace", count_pace)


def release_stops_after_its_first_batch() -> Bug:
    """The ramp forgets that more is to come."""
    right = Freezes.take_batch

    def take_batch(self: Freezes, line: str, now_ms: int) -> int:
        batch = right(self, line, now_ms)
        self._scopes[line] = type(self._scopes[line])(*[*_fields(self._scopes[line])[:-1], 1 << 62])
        return batch

    return replaced(Freezes, "take_batch", take_batch)


def _fields(freeze: Freeze) -> list[Any]:
    return [getattr(freeze, name) for name in freeze.__struct_fields__]


def scope_thaws_while_frozen() -> Bug:
    """An empty line opens its scope, released or not."""

    def pump(self: Any) -> None:
        recovery = self._now.recovery
        for line in [freeze.line for freeze in recovery.freezes]:
            if not recovery.holds.waiting(line):
                recovery.freezes._scopes.pop(line)
        right(self)

    right = releasing.Releasing.pump
    return replaced(releasing.Releasing, "pump", pump)


def ended_runs_stay_in_line() -> Bug:
    """A cancelled run's steps keep their place, and are given out later."""
    return replaced(Holds, "drop", lambda self, run_id: None)


def held_steps_are_forgotten() -> Bug:
    """A step is held in its row and stands in no line."""
    right = adopting.before_adoption

    def before_adoption(recovery: Recovery, draft: Any) -> None:
        draft.held = draft.held[1:]
        right(recovery, draft)

    return replaced(runs, "before_adoption", before_adoption)


def order_by_insertion() -> Bug:
    """A line decides by who came first, which a restore does not know."""

    def first(self: WaitOrder, now_ms: int) -> Any:
        for run_id, line in self._lines.items():
            return run_id, line.top()
        return None

    return replaced(WaitOrder, "first", first)


RECOVERY_MUTANTS = (
    Mutant("freeze forgotten at the second scope", freeze_forgotten_at_the_second_scope, 40),
    Mutant("freeze of dependencies ignored", freeze_of_dependencies_ignored, 40),
    Mutant("freeze lost in a restore", freeze_lost_in_a_restore, 40),
    Mutant("lines lost in a restore", lines_lost_in_a_restore, 40),
    Mutant("balance lost in a restore", balance_lost_in_a_restore, 40),
    Mutant("width ignored", width_ignored, 40),
    Mutant("width not given back", width_not_given_back, 40),
    Mutant("release stops after its first batch", release_stops_after_its_first_batch, 40),
    Mutant("scope thaws while frozen", scope_thaws_while_frozen, 40),
    Mutant("ended runs stay in line", ended_runs_stay_in_line, 40),
    Mutant("held steps are forgotten", held_steps_are_forgotten, 40),
    Mutant("order by insertion", order_by_insertion, 40),
)
