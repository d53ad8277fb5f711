"""Bank statements against the ledger, while the booking service is away for longer than runs live.

    python -m examples.reconciliation [--accounts N] [--seed N]

Exit code 0 when every account is reconciled or wholly taken back, each booking is done once or
undone once, and the money adds up, by the services' books and the log.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dalsegno.client import RunResult
from examples.closing_table import show_facts
from examples.reconciliation.facts import Facts, gather
from examples.reconciliation.rules import accounts
from examples.reconciliation.scenario import Scenario
from examples.stage import Stage


def _euros(cents: int) -> str:
    return f"{cents / 100:,.2f}"


def lines(facts: Facts) -> list[tuple[str, object]]:
    """The lines of the closing table."""
    return [
        ("accounts", facts.accounts),
        ("reconciled: ledger and bank agree", facts.reconciled),
        ("taken back: nothing of it stands", facts.taken_back),
        ("runs that an outage longer than their life put to a person", facts.asked),
        ("decisions taken: retry under the same keys", facts.retried),
        ("decisions taken: compensate", facts.compensated),
        ("compensations that the outage held too long, tried again", facts.undo_again),
        ("second decisions on the same package, refused", facts.second_refused),
        ("bookings of unknown outcome then: had been done", facts.unknown_done),
        ("bookings of unknown outcome then: had not", facts.unknown_not_done),
        ("bookings in the book", facts.bookings),
        ("of these undone", facts.undone),
        ("keys closed before the booking came", facts.closed_before),
        ("the bank says, €", _euros(facts.bank)),
        ("ledger and standing bookings say, €", _euros(facts.books)),
        ("difference of the accounts taken back, €", _euros(facts.left_open)),
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="examples.reconciliation", description=__doc__)
    parser.add_argument("--accounts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(argv)
    console, begun = Console(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-reconciliation-"))
    # What the client says of a broker goes beside the line, not across it.
    logging.basicConfig(filename=folder / "example.log", level=logging.INFO)
    console.print(f"logs and books: {folder}")
    names = accounts(options.accounts, options.seed)
    with Stage(folder) as stage, Live(console=console, refresh_per_second=5) as live:

        def tell(what: str, ends: dict[str, RunResult]) -> None:
            states = Counter(result.state.value for result in ends.values())
            told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            live.update(Text(f"{time.monotonic() - begun:4.0f} s  {what}: {told or 'none ended'}"))

        scenario = Scenario(stage, names, tell)
        scenario.up()
        scenario.play()
        verified = stage.verified()
        facts = gather(stage.bootstrap, stage.topics, folder, names)
    console.print(Text("one of the packages, as the clerk saw it:", style="bold"))
    console.print(Text(scenario.shown))
    title, seconds = "facts, from the services' books and the log", time.monotonic() - begun
    show_facts(console, title, lines(facts), verified=verified, seconds=seconds, wrong=facts.faults)
    return 0 if facts.right and verified and facts.asked else 1


if __name__ == "__main__":
    sys.exit(main())
