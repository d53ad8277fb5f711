"""Faults in an order and at moments that a seed decides, while the load goes on."""

from __future__ import annotations

import signal
import time
from random import Random

from tests.integration.engine.harness import EngineProcess, Lab, wait_for
from tests.integration.oracle.load import Load

from dalsegno.ops.embedded import EmbeddedKafka

SESSION = {
    "DALSEGNO_SESSION_TIMEOUT_MS": "3000",
    "DALSEGNO_HEARTBEAT_INTERVAL_MS": "300",
    "DALSEGNO_OFFSETS_INTERVAL_MS": "1000",
}
KINDS = ("kill", "kill", "kill", "kill", "kill", "freeze", "third", "broker")
LIMIT_S = 150.0


class Faults:
    """Two engines, one of them a static member, and what happens to them."""

    def __init__(
        self, lab: Lab, broker: EmbeddedKafka, load: Load, seed: int, fold: str = "served"
    ) -> None:
        self._lab = lab
        self._broker = broker
        self._load = load
        self._random = Random(f"{seed}/faults")
        self.log: list[str] = []
        self.took: dict[str, float] = {}
        self._begun = time.monotonic()
        self._fold = fold
        self.engines = [lab.engine("s", fold=fold, DALSEGNO_NAME="s", **SESSION)]
        self.engines.append(lab.engine("d", fold=fold, **SESSION))

    def whole(self, *, without: EngineProcess | None = None) -> None:
        """Until both engines have partitions, and all together have every one, ready.

        A third may stay without: Faust's assignor moves nothing while two and two is no overload.
        """
        engines = [each for each in self.engines if each is not without]

        def owned() -> bool:
            for each in engines:
                code = each.process.poll()
                assert code is None, f"an engine ended with {code}: {each.tail()}"
            found = [each.get("/readyz") for each in engines]
            counts = [len(body["partitions"]) if status == 200 else 0 for status, body in found]  # type: ignore[index, call-overload]
            lasting = [
                n for each, n in zip(engines, counts, strict=True) if each.log.stem[0] != "t"
            ]
            return min(lasting) > 0 and sum(counts) == self._lab.partitions

        wait_for("every partition ready", owned, LIMIT_S)

    def run(self, kinds: tuple[str, ...] = KINDS) -> None:
        """Each fault in its share of the load, at a random moment of it."""
        faults = {
            "kill": self._kill,
            "freeze": self._freeze,
            "third": self._third,
            "broker": self._lose_broker,
        }
        order = list(kinds)
        self._random.shuffle(order)
        share = len(self._load.runs) / (len(order) + 1)
        for number, kind in enumerate(order):
            self._load.allow(int(share * (number + 1)))
            moment = int(share * (number + self._random.random() * 0.8))
            wait_for(f"run {moment} begun", lambda want=moment: self._load.begun >= want, LIMIT_S)
            begun = time.monotonic()
            self._note(f"{kind} at run {self._load.begun}")
            faults[kind]()
            self.whole()
            self.took[f"{number} {kind}"] = round(time.monotonic() - begun, 1)
        self._load.allow(len(self._load.runs))

    def _note(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self._begun:6.1f} s  {text}")

    def _pause(self) -> None:
        """The moment is the fault's own, not a wait for anything."""
        time.sleep(self._random.random())

    def _kill(self) -> None:
        self._pause()
        both = self._random.random() < 0.25
        for engine in self.engines if both else [self._random.choice(self.engines)]:
            engine.kill()
            self._note(f"  kill -9 {engine.log.stem}")
            self._pause()
            engine.restart()

    def _freeze(self) -> None:
        engine = self.engines[1]
        engine.signal(signal.SIGSTOP)
        self.whole(without=engine)
        # Runs that end meanwhile are written no more: what a zombie wrote over them would stay.
        goal = len(self._load.ended) + 8
        wait_for(
            "runs end meanwhile", lambda: len(self._load.ended) > goal or self._idle(), LIMIT_S
        )
        engine.signal(signal.SIGCONT)
        self._note(f"  {engine.log.stem} woken")

    def _idle(self) -> bool:
        return len(self._load.ended) >= self._load.allowed

    def _third(self) -> None:
        third = self._lab.engine("t", fold=self._fold, **SESSION)
        self.engines.append(third)
        wait_for("the third has some", lambda: third.get("/readyz")[0] == 200, LIMIT_S)
        self.whole()
        self._note("  the third leaves")
        assert third.term() == 0
        self.engines.remove(third)

    def _lose_broker(self) -> None:
        self._pause()
        self._broker.kill()
        self._pause()
        self._broker.start()
