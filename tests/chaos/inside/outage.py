"""`python -m tests.chaos.inside.outage MODE RUNS ACKS`: one outage of the dependency, as JSON.

A few runs while all is well; then the proxy fails by MODE, and many more runs are started. Once the
breaker is open, all of them wait and three probes have failed, the proxy lets everything through.
Ends when all runs have ended. Run ids and times of acknowledged starts go to ACKS.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.outage_lab.service import Mode, peak_per_second
from tests.chaos.inside.dependency import SERVICE_PORT, Counts
from tests.chaos.inside.judge import open_lab
from tests.chaos.inside.paid_flow import flow
from tests.integration.engine.harness import wait_for
from tests.oracle.progress import Ends

from dalsegno.client import Client
from dalsegno.ops.kafka.fault_points import NoSuchPointError, read_point
from dalsegno.streams.core.faultpoint.point import FaultPoint, Phase
from dalsegno.streams.engine.settings import EngineSettings

POINT: Final = "validation"
FIRST: Final = 5
PROBES: Final = 3
LIMIT_S: Final = 180.0
_URL: Final = f"http://dependency:{SERVICE_PORT}"


@dataclass
class Outage:
    """What happened. Times in seconds; what arrived is as the service counted it.

    `probe_gaps_s`: between the tries at the proxy once all runs waited. From the return of the
    dependency on: `found_after_s`, `recovered_after_s` (all runs have ended), `peak_per_s`,
    `tried_after`.
    """

    mode: str
    runs: int
    opened_after_s: float
    waited: int
    probe_gaps_s: list[float]
    tried_during: int
    arrived_during: int
    found_after_s: float
    recovered_after_s: float
    peak_per_s: int
    tried_after: int
    served: int
    served_twice: int
    repeats: int


class Runs:
    """Starts runs and keeps their acknowledgements."""

    def __init__(self, mode: Mode, acks: Path) -> None:
        self._mode, self._acks = mode, acks
        self.ids: list[str] = []

    def start(self, count: int) -> None:
        numbers = range(len(self.ids), len(self.ids) + count)
        with Client() as client, self._acks.open("a") as book:
            started = client.start_many(flow, {self._name(number): {} for number in numbers})
            book.writelines(f"{run_id} {time.monotonic():.3f}\n" for run_id in started)
        self.ids += started

    def _name(self, number: int) -> str:
        return f"paid-{self._acks.name.removeprefix('acks-')}-{self._mode}-{number:04d}"

    def served(self) -> bool:
        return counts().done.keys() >= set(self.ids)

    def wait_served(self) -> None:
        wait_for("all runs served", self.served, LIMIT_S)

    def wait_ended(self) -> None:
        """Until the log says so of each: what was served need not have been heard of."""
        ends = Ends(open_lab())
        late = ends.wait(self.ids, LIMIT_S)
        ends.close()
        assert not late, f"not ended after {LIMIT_S} s: {sorted(late)}"


def outage(mode: Mode, count: int, acks: Path) -> Outage:
    runs = Runs(mode, acks)
    runs.start(FIRST)
    runs.wait_served()
    wait_for("it is well", lambda: phase() is Phase.HEALTHY, LIMIT_S)
    before, begun = counts(), time.monotonic()
    tell(mode)
    try:
        runs.start(count)
        wait_for("the breaker opens", lambda: phase() is not Phase.HEALTHY, LIMIT_S)
        opened_s = time.monotonic() - begun
        waited = wait_for("all wait", lambda: waiting(count), LIMIT_S)
        still_s = time.monotonic()
        wait_for("probes fail", lambda: len(since(counts().tries, still_s)) >= PROBES, LIMIT_S)
    finally:
        at_return, back_s = counts(), time.monotonic()
        tell(Mode.PASS)
    runs.wait_ended()
    after, took_s = counts(), time.monotonic() - back_s
    probes = since(at_return.tries, still_s)
    served = {run_id: after.done.get(run_id, 0) for run_id in runs.ids}
    return Outage(
        mode=mode,
        runs=len(runs.ids),
        opened_after_s=opened_s,
        waited=waited,
        probe_gaps_s=[later - first for first, later in pairwise(probes)],
        tried_during=len(at_return.tries) - len(before.tries),
        arrived_during=len(at_return.arrivals) - len(before.arrivals),
        found_after_s=min(since(after.arrivals, back_s)) - back_s,
        recovered_after_s=took_s,
        peak_per_s=peak_per_second(after.arrivals, back_s),
        tried_after=len(since(after.tries, back_s)),
        served=sum(served.values()),
        served_twice=sum(times > 1 for times in served.values()),
        repeats=after.repeats - before.repeats,
    )


def since(times: list[float], at_s: float) -> list[float]:
    return [each for each in times if each >= at_s]


def counts() -> Counts:
    """What the dependency has counted so far."""
    with urllib.request.urlopen(f"{_URL}/counts", timeout=10) as answer:
        return Counts(**json.load(answer))


def tell(mode: Mode) -> None:
    request = urllib.request.Request(f"{_URL}/mode/{mode}", method="POST")
    with urllib.request.urlopen(request, timeout=10):
        return


def point() -> FaultPoint | None:
    """The fault point; None if nothing was ever reported about it."""
    try:
        return read_point(EngineSettings(), POINT)
    except NoSuchPointError:
        return None


def phase() -> Phase:
    found = point()
    return Phase.HEALTHY if found is None else found.phase


def waiting(count: int) -> int:
    """How many wait, once all of them do but one that probes and what is spent of its turn."""
    found = point()
    sides = [] if found is None else list(found.sides.values())
    waits, runs = sum(side.waiting for side in sides), sum(side.running for side in sides)
    return waits if runs <= 1 and waits >= count - 1 else 0


if __name__ == "__main__":
    print(json.dumps(asdict(outage(Mode(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))))
