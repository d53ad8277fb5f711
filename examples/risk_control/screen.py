"""What the terminal shows: a live table while the demo runs, and the facts at its end."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from examples.risk_control.facts import Facts
from examples.risk_control.outage import Outage
from examples.risk_control.processes import Fleet
from examples.risk_control.rules import SERVICES


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


class Screen:
    """Renders the state of the demo; reads ledgers and process states, decides nothing."""

    def __init__(self, fleet: Fleet, ledgers: Path, applications: int, outage: Outage) -> None:
        self._fleet, self._ledgers, self._applications = fleet, ledgers, applications
        self._outage = outage

    def render(self, started: int, ended: int, broker: str, told: list[str]) -> Group:
        """`started`, `ended`: applications so far; `told`: what the faults did, oldest first."""
        services = Table(title="services", expand=True)
        for column in ("service", "state", "effects in its ledger"):
            services.add_column(column, justify="right" if column[0] == "e" else "left")
        for name in SERVICES:
            state = self._state(name)
            services.add_row(name, state, str(_lines(self._ledgers / f"{name}.jsonl")))
        people = [name for name in self._fleet.names() if name not in SERVICES]
        processes = "   ".join(f"{name} {self._state(name)}" for name in people)
        return Group(
            Text(f"applications: {started} of {self._applications} started, {ended} decided"),
            Text.from_markup(f"broker {broker}   {processes}"),
            services,
            self._outage.render(),
            *[Text(f"  {line}", style="dim") for line in told[-8:]],
        )

    def _state(self, name: str) -> str:
        return "[green]up[/]" if self._fleet.alive(name) else "[red]down[/]"


def lines(facts: Facts) -> list[tuple[str, object]]:
    """The lines of the closing table."""
    return [
        ("runs", facts.runs),
        ("finished right", facts.finished_right),
        ("finished wrong", facts.finished_wrong),
        ("lost", facts.lost),
        ("effects executed", facts.effects),
        ("effects applied twice at a receiver", facts.applied_twice),
        ("contradictory scores", facts.contradictory),
        ("steps damaged and recovered", facts.damaged_steps),
        ("mean time to recovery", f"{facts.recovery_mean_s:.2f} s"),
        ("longest time to recovery", f"{facts.recovery_max_s:.2f} s"),
        ("rework rate (attempts beyond the first per step)", f"{facts.rework_rate:.3f}"),
    ]
