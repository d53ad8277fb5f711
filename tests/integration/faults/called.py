"""An engine, a worker and a client around a service that can fail; what their topics say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from benchmarks.outage_lab.called_flow import URL, flow
from benchmarks.outage_lab.service import Service
from tests.integration.engine.harness import EngineProcess, Lab, WorkerProcess, wait_for

from dalsegno.client import Client
from dalsegno.ops.kafka.fault_points import NoSuchPointError, read_point
from dalsegno.schemas.codec import decode
from dalsegno.schemas.control import BreakerState, FaultPointChanged, QuotaGranted
from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.faultpoint.point import FaultPoint, Phase

T = TypeVar("T")
POINT = "validation"


class Called:
    """The service, and who calls it. Runs are `run-0`, `run-1` and so on."""

    def __init__(self, lab: Lab, service: Service) -> None:
        self.lab = lab
        self.service = service
        self.engine: EngineProcess = lab.engine(fold="served")
        self.engine.wait_ready()
        self.client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
        self.worker = WorkerProcess(
            lab, "w", "benchmarks.outage_lab.called_flow", **{URL: service.url}
        )
        self.runs: list[str] = []
        self._finished = 0

    def start(self, count: int) -> None:
        """So many more runs."""
        first = len(self.runs)
        made = [f"run-{number}" for number in range(first, first + count)]
        self.client.start_many(flow, {run_id: {} for run_id in made})
        self.runs += made

    def served(self) -> int:
        """Runs that the service has in its ledger."""
        return len(self.service.done)

    def wait_served(self, count: int | None = None, limit_s: float = 120.0) -> None:
        """Until the service has served so many runs, by default all that were started."""
        wanted = len(self.runs) if count is None else count
        wait_for(f"{wanted} runs served", lambda: self.served() >= wanted, limit_s)

    def finish(self) -> None:
        """Every run has succeeded, and the service has each in its ledger exactly once."""
        results = [self.client.wait(run_id, "60s") for run_id in self.runs[self._finished :]]
        self._finished = len(self.runs)
        assert {result.state for result in results} == {RunState.SUCCEEDED}
        assert set(self.service.done) == set(self.runs)
        assert set(self.service.done.values()) == {1}

    def point(self) -> FaultPoint:
        """The fault point as its changelog says."""
        try:
            return read_point(self.lab.settings, POINT)
        except NoSuchPointError:
            return FaultPoint(name=POINT)

    def wait_phase(self, *phases: Phase, limit_s: float = 60.0) -> FaultPoint:
        """Until the fault point stands there."""
        return self.wait_point(f"{POINT} is {phases}", lambda it: it.phase in phases, limit_s)

    def wait_waiting(self, count: int, limit_s: float = 60.0) -> None:
        """Until so many steps wait for it."""
        self.wait_point(f"{count} steps wait", lambda it: it.waiting >= count, limit_s)

    def wait_point(
        self, what: str, looks_right: Callable[[FaultPoint], bool], limit_s: float = 60.0
    ) -> FaultPoint:
        """Until its changelog says so; that is read whole each time."""
        found: list[FaultPoint] = []

        def look() -> bool:
            found.append(self.point())
            return looks_right(found[-1])

        wait_for(what, look, limit_s, every_s=0.25)
        return found[-1]

    def orders(self) -> list[FaultPointChanged | QuotaGranted]:
        """All that the fault points have said to the partitions."""
        return [
            event
            for partition in range(self.lab.partitions)
            for message in self.lab.read(self.lab.topics.events, partition)
            if isinstance(event := decode(message.value()), FaultPointChanged | QuotaGranted)
        ]

    def faults(self) -> list[object]:
        """All records of the faults topic."""
        return [
            decode(message.value())
            for partition in range(self.lab.partitions)
            for message in self.lab.read(self.lab.topics.faults, partition)
        ]

    def found(self, kind: type[T]) -> list[T]:
        """Those of one kind."""
        return [record for record in self.faults() if isinstance(record, kind)]

    def opened(self) -> bool:
        """Whether the breaker has ever opened."""
        return bool(self._opened_in())

    def opened_everywhere(self) -> bool:
        """Whether every partition has been told that it opened."""
        return self._opened_in() == set(range(self.lab.partitions))

    def _opened_in(self) -> set[int]:
        return {
            order.partition
            for order in self.orders()
            if isinstance(order, FaultPointChanged) and order.state is BreakerState.OPEN
        }

    def close(self) -> None:
        """Ends what was started."""
        self.worker.end()
        self.client.close()
        self.service.close()
