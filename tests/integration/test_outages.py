"""A real HTTP service fails in every way under many runs, on a real Kafka, and returns.

One session: the same engine, worker and service go through all of it, one outage after the other.
The service counts its arrivals and keeps a ledger by idempotency key.

    DALSEGNO_TEST_RUNS=300 pytest -s tests/integration/test_outages.py     fewer runs, figures shown
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from benchmarks.outage_lab.called_flow import AT_ONCE, TIMEOUT_S
from benchmarks.outage_lab.service import Mode, Service, peak_per_second
from tests.integration.engine.harness import Lab
from tests.integration.faults.called import Called

from dalsegno.schemas.control import FaultPointChanged, QuotaGranted
from dalsegno.streams.core.faultpoint.point import Phase

pytestmark = pytest.mark.kafka

RUNS = int(os.environ.get("DALSEGNO_TEST_RUNS", "2000"))
# Runs that find out about an outage; all others wait from then on.
FIRST = 30
# As many at a time as the service serves at once, until every partition knows how long it takes.
WAVES, AT_EASE = 20, 8
# While it is slow the runs come in so many at a time, as long as no more than that wait in queues.
AT_A_TIME, QUEUED_MAX = 50, 150
FOUND_S_MAX = 6.0 + TIMEOUT_S + 5.0  # the longest pause, a probe that hangs, a loaded machine
OUTAGES = (Mode.REFUSE, Mode.HANG, Mode.BUSY, Mode.HALF_OPEN)


@pytest.fixture
def called(lab: Lab) -> Iterator[Called]:
    made = Called(lab, Service(span_s=0.05, at_once=AT_EASE))
    yield made
    made.close()


@dataclass
class Figures:
    """What one outage and its end looked like, from the service's side."""

    mode: Mode
    tried_during: int
    found_s: float
    took_s: float
    peak: int
    tried_after: int

    def __str__(self) -> str:
        return (
            f"{self.mode}: {RUNS} runs whole after {self.took_s:.1f} s, return found after "
            f"{self.found_s:.1f} s, peak {self.peak}/s, {self.tried_during} tries during it, "
            f"{self.tried_after} after it"
        )


def outage(called: Called, mode: Mode) -> Figures:
    """The service fails in one way under `RUNS` runs, returns, and serves them all."""
    service = called.service
    began_s = time.monotonic()
    service.mode = mode
    called.start(FIRST)
    called.wait_phase(Phase.OPEN)
    called.start(RUNS - FIRST)
    called.wait_waiting(RUNS - 2 * FIRST)
    back_s = time.monotonic()
    service.mode = Mode.PASS
    called.wait_served()
    took_s = time.monotonic() - back_s
    called.finish()
    return figures_of(called, mode, began_s, back_s, took_s)


def slow(called: Called) -> Figures:
    """The service becomes slow and never fails; what is limited then is served when it is back."""
    service = called.service
    began_s = time.monotonic()
    service.mode = Mode.SLOW
    last = len(called.runs) + RUNS
    while called.point().phase is not Phase.RAMPING:
        if len(called.runs) - called.served() < QUEUED_MAX:
            called.start(AT_A_TIME)
        assert len(called.runs) < last, "it was never limited"
    while len(called.runs) < last:
        called.start(min(AT_A_TIME, last - len(called.runs)))
    called.wait_waiting(AT_A_TIME)
    back_s = time.monotonic()
    service.mode = Mode.PASS
    called.wait_served()
    took_s = time.monotonic() - back_s
    called.finish()
    said = called.orders()
    reasons = [each.reason for each in said if isinstance(each, FaultPointChanged)]
    assert any("were slow" in reason for reason in reasons), reasons
    assert not any(isinstance(each, FaultPointChanged) and each.state != "closed" for each in said)
    # What came after it was noticed went by permits.
    assert sum(each.permits for each in said if isinstance(each, QuotaGranted)) >= RUNS // 4
    return figures_of(called, Mode.SLOW, began_s, back_s, took_s)


def figures_of(called: Called, mode: Mode, began_s: float, back_s: float, took_s: float) -> Figures:
    """What the service counted between the beginning of an outage, its end, and now."""
    service = called.service
    tries = service.tries
    return Figures(
        mode,
        tried_during=sum(began_s <= at < back_s for at in tries),
        found_s=min(at for at in service.arrivals if at >= back_s) - back_s,
        took_s=took_s,
        peak=peak_per_second(service.arrivals, back_s),
        tried_after=sum(at >= back_s for at in tries),
    )


@pytest.mark.timeout(600)
def test_the_service_fails_in_every_way_and_no_storm_meets_its_return(called: Called) -> None:
    for _ in range(WAVES):
        called.start(AT_EASE)
        called.finish()
    service = called.service
    figures = slow(called)
    print(figures, flush=True)
    assert service.repeats == called.point().failures == 0
    assert figures.peak <= 1.5 * service.capacity_per_s
    for mode in OUTAGES:
        repeats = service.repeats
        figures = outage(called, mode)
        print(figures, flush=True)
        # Those that found out, once or twice each, and then one probe at a time.
        assert figures.tried_during <= 2 * FIRST + 30
        assert figures.found_s <= FOUND_S_MAX
        assert figures.peak <= 1.5 * service.capacity_per_s
        assert figures.tried_after <= 1.05 * RUNS + AT_ONCE
        # What failed had never reached the service, but where only its answer was lost.
        assert (service.repeats > repeats) == (mode is Mode.HALF_OPEN)
