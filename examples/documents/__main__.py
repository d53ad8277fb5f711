"""Records become cited reports over three queues, while a worker and the engine are killed.

    python -m examples.documents [--documents N] [--seed N]

Exit code 0 when every document has its report, filed once, every line of it traced to its source,
and every consumer was given the newest context and nothing else: by the log and the books.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dalsegno.client import RunResult
from examples.closing_table import show_facts
from examples.documents.facts import Facts, gather
from examples.documents.scenario import Scenario
from examples.documents.services import reads
from examples.documents.sources import RECORDS, documents
from examples.stage import Stage


def lines(facts: Facts) -> list[tuple[str, object]]:
    """The lines of the closing table."""
    return [
        ("documents", facts.documents),
        ("reports filed, each once", facts.filed),
        *[(f"conclusion {how}", count) for how, count in sorted(facts.conclusions.items())],
        ("quotes traced to their pages, word for word", facts.quotes),
        ("extractions that went on from a save", facts.resumed),
        ("pages that they read a second time", facts.pages_again),
        ("extractions run again for a missing fact", facts.rerun),
        ("facts supplied by a person", facts.supplied),
        ("fields edited by a person", facts.edited),
        ("decisions refused: a wrong type, a field not to be edited", facts.refused),
        ("consumers, all given the newest context", facts.consumers),
        ("bytes of a document, mean", facts.document_bytes),
        *[(f"bytes of the inputs of {step}, mean", n) for step, n in facts.handoffs.items()],
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="examples.documents", description=__doc__)
    parser.add_argument("--documents", type=int, default=24)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(argv)
    console, begun = Console(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-documents-"))
    # What the client says of a broker goes beside the line, not across it.
    logging.basicConfig(filename=folder / "example.log", level=logging.INFO)
    given = documents(options.documents, options.seed)
    kind = "recorded" if RECORDS.exists() else "generated: the recorded ones are not here"
    console.print(f"{len(given)} documents ({kind}); logs, books and reports: {folder}")
    with Stage(folder) as stage, Live(console=console, refresh_per_second=5) as live:

        def tell(what: str, ends: dict[str, RunResult]) -> None:
            said = f"{len(reads(folder))} pages read, {len(ends)} reports"
            live.update(Text(f"{time.monotonic() - begun:4.0f} s  {what}: {said}"))

        scenario = Scenario(stage, given, options.seed, tell)
        scenario.up()
        scenario.play()
        verified = stage.verified()
        facts = gather(stage.bootstrap, stage.topics, folder, given)
    if scenario.shown:
        console.print(Text("one of the packages, as the editor saw it:", style="bold"))
        console.print(Text(scenario.shown))
    for decision, told in scenario.refused.items():
        console.print(Text(f"refused: {decision}: {told}"))
    title = "facts, from the services' books, the reports and the log"
    seconds = time.monotonic() - begun
    show_facts(console, title, lines(facts), verified=verified, seconds=seconds, wrong=facts.faults)
    return 0 if facts.right and verified and facts.filed == facts.documents else 1


if __name__ == "__main__":
    sys.exit(main())
