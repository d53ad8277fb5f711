"""The person: reads what waits, and decides by the rules of each example, with a signed key."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Final

from examples.documents.scenario import UNSAID
from examples.reconciliation.rules import taken_back

from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.kafka.writer import Writer
from dalsegno.ops.people.deciding import Decider, Target, operations
from dalsegno.ops.people.keys import SigningKey
from dalsegno.ops.people.packages import read_open
from dalsegno.schemas.control import DecisionType
from dalsegno.schemas.outputs import Escalation
from dalsegno.schemas.values import Value
from dalsegno.streams.engine.settings import EngineSettings

_LOOK_S: Final = 0.4

Choice = tuple[DecisionType, dict[str, Value]]


class Clerk(threading.Thread):
    """Decides about every package once. `decided`: what was said of which, in order."""

    def __init__(
        self, settings: EngineSettings, key: SigningKey, before: Callable[[Escalation], None]
    ) -> None:
        super().__init__(name="clerk")
        self._settings, self._key, self._before = settings, key, before
        self._stopping = threading.Event()
        self.decided: dict[str, DecisionType] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with Reader(self._settings) as reader:
                writer = Writer(self._settings)
                decider = Decider(self._settings, reader, writer, self._key)
                while not self._stopping.wait(_LOOK_S):
                    for package in read_open(reader, self._settings, _now_ms()):
                        if package.escalation_id not in self.decided:
                            self._decide(decider, package)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self.join()

    def _decide(self, decider: Decider, package: Escalation) -> None:
        self._before(package)
        decision, fields = choice(package)
        target = Target.of(package)
        decider.append(target, decision, "by the rules of the house", ops=operations(fields))
        self.decided[package.escalation_id] = decision


def choice(package: Escalation) -> Choice:
    """What this person says to a package."""
    offered = {option.decision for option in package.options if not option.why_not}
    if package.flow == "order-forward-only":
        # The shop refuses for good: what was done of the order is taken back, if anything was.
        can = DecisionType.COMPENSATE in offered
        return (DecisionType.COMPENSATE if can else DecisionType.CANCEL), {}
    if package.flow == "reconciliation" and DecisionType.COMPENSATE in offered:
        back = taken_back(package.run_id)
        return (DecisionType.COMPENSATE if back else DecisionType.RETRY), {}
    if package.flow == "documents" and package.missing_fields:
        said = {"text": UNSAID, "source": "ana"}
        return DecisionType.SUPPLY, {"conclusion": said}
    if package.flow == "documents" and DecisionType.EDIT in offered:
        return DecisionType.EDIT, {"title": f"How many? ({package.run_id})"}
    assert DecisionType.RETRY in offered, f"{package.question} offers only {sorted(offered)}"
    return DecisionType.RETRY, {}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def switch(url: str, body: bytes) -> None:
    """Tells the services how they behave from now on."""
    with urllib.request.urlopen(urllib.request.Request(url + "control", data=body), timeout=10):
        return
