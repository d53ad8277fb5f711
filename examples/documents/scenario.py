"""The course of events: documents come in, a worker and the engine die, an editor helps out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dalsegno.client import Client, RunResult, StepState
from examples.desk import Desk, Package
from examples.documents import services
from examples.documents.flow import NAME, POLICY, QUEUES, documents
from examples.documents.sources import Document
from examples.stage import Stage

FLOW: Final = "examples.documents.flow:documents"
LIMIT_S: Final = 120.0
POOLS: Final = {"extract-1": "extract", "extract-2": "extract"} | {
    name: name for name in QUEUES[1:]
}
"""Workers by name, and the queue that each takes from."""

_AT_A_TIME: Final = "6"
"""Documents that one extracting worker reads at once."""

_ROUNDS_MAX: Final = 4
"""A conclusion, then a title: what is asked about a document after that is not for this editor."""

UNSAID: Final = "The record ends without a conclusion."
SHORT_TITLE: Final = "What the experts found"

Tell = Callable[[str, dict[str, RunResult]], None]


class Scenario:
    """`tell` is called some times a second with what happens and the ends so far."""

    def __init__(self, stage: Stage, given: Sequence[Document], seed: int, tell: Tell) -> None:
        self.stage, self.given, self._seed, self._tell = stage, given, seed, tell
        self._client = Client(bootstrap_servers=stage.bootstrap, prefix=stage.prefix)
        self._ends: dict[str, RunResult] = {}
        self._editor: Desk | None = None
        self.shown = ""
        self.refused: dict[str, str] = {}
        """What answers that were not to be were told, by decision."""

    def up(self) -> None:
        """Topics, queues, services, engine, a pool of workers for each queue, the editor's key."""
        self.stage.prepare(QUEUES, policy=POLICY)
        urls = services.start(self.stage, self._seed, len(self.given))
        self.stage.engine()
        for name, queue in POOLS.items():
            more = ["--concurrency", _AT_A_TIME] if queue == "extract" else []
            self.stage.worker(name, FLOW, "--queue", queue, *more)
        self._editor = Desk(self.stage, "ana")
        self.stage.ready(urls)

    def play(self) -> dict[str, RunResult]:
        """From the first document to the last report; returns the ends."""
        begun = {each.name: {"document": each.facts()} for each in self.given}
        self._client.start_many(documents, begun)
        third = sum(len(each.pages) for each in self.given) // 3
        folder = self.stage.folder
        self._until("documents are read", lambda: len(services.reads(folder)) >= third)
        self.stage.again(self._reader(folder))
        packages = self._wait_for_packages("a reader was killed and goes on")
        if packages:
            self.shown = self._desk.show(packages[0].name)
        # What waits for a person needs no engine to be read, and loses nothing by its death.
        self.stage.fleet.kill("engine")
        self.stage.fleet.restart("engine")
        for _ in range(_ROUNDS_MAX):
            if packages:
                self._answer(packages)
                packages = self._wait_for_packages("the editor has answered")
        self._client.close()
        return self._ends

    def _reader(self, folder: Path) -> str:
        """A worker in the middle of a document, some pages of which are saved."""
        found = ["extract-1"]

        def reading() -> bool:
            read = Counter(each.run for each in services.reads(folder))
            for each in self.given:
                if not 2 <= read[each.name] <= len(each.pages) - 2:
                    continue
                for step in self._client.query(each.name).steps:
                    holds = [name for name in POOLS if step.worker.endswith(f"-{name}")]
                    if step.step == "extract" and step.state is StepState.RUNNING and holds:
                        found[:] = holds
                        return True
            return False

        self._until("a document is half read", reading)
        return found[0]

    @property
    def _desk(self) -> Desk:
        assert self._editor is not None, "up() comes first"
        return self._editor

    def _look(self, what: str) -> None:
        for each in self.given:
            if each.name not in self._ends and (end := self._client.result(each.name)) is not None:
                self._ends[each.name] = end
        self._tell(what, self._ends)

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + LIMIT_S
        while not condition() and time.monotonic() < limit:
            self._look(what)
            time.sleep(0.1)

    def _wait_for_packages(self, what: str) -> list[Package]:
        """Until every document has its report or waits for the editor."""
        found: list[Package] = []

        def settled() -> bool:
            found[:] = self._desk.waiting(NAME)
            self._look(what)
            return len({each.run_id for each in found} | self._ends.keys()) == len(self.given)

        self._until(what, settled)
        return found

    def _answer(self, packages: Sequence[Package]) -> None:
        """A missing conclusion is said; a title that is too long is put shorter."""
        lines = self._desk.freeze(NAME, self.stage.folder)
        unsaid = [lines[each.name] for each in packages if each.missing and each.name in lines]
        long = [each.name for each in packages if not each.missing and each.name in lines]
        if unsaid:
            if "supply" not in self.refused:
                # The form says that a conclusion is a map: the question stays open.
                asked = next(each.name for each in packages if each.missing)
                ran = self._desk.decide("supply", asked, "read", conclusion=UNSAID)
                self.refused["supply"] = (ran.err or ran.out).strip()
            said = {"text": UNSAID, "source": self._desk.holder}
            self._desk.decide_all("supply", unsaid, "I have read the record", conclusion=said)
        if long:
            if "edit" not in self.refused:
                # What the step does not read is not for its editor to change.
                ran = self._desk.decide("edit", long[0], "better so", claims=[])
                self.refused["edit"] = (ran.err or ran.out).strip()
            why = "the archive takes no longer title"
            self._desk.decide_all("edit", [lines[name] for name in long], why, title=SHORT_TITLE)
