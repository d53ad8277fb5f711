"""What a partition reports, and what an actor orders, is taken at the other end: the MAC fits."""

from __future__ import annotations

from dalsegno.schemas import headers
from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import BreakerState, ClockTick, FaultPointChanged, QuotaGranted
from dalsegno.schemas.faults import HealthReported
from dalsegno.schemas.faults_intake import FaultsIntake
from dalsegno.schemas.intake import Intake
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.outputs import FaultReport
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.actions import Output, ReportFault
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine.encoding import Encoder
from dalsegno.streams.engine.signing import Signer

TOPICS = Topics("t")
RING = Keyring({"k1": b"0" * 32})
COUNT = 6


def test_a_report_is_read_by_the_actor_of_its_fault_point() -> None:
    encoder = Encoder(
        TOPICS, 3, {TOPICS.faults: COUNT}, size_max=lambda _: 1_000_000, encode=encode,
        omitted=lambda *_: None,
        sign=lambda topic, partition, value: RING.sign("k1", topic, partition, value),
    )  # fmt: skip
    report = FaultReport(fault_point="pay", partition=3, failures=1, successes=0, waiting=2)
    record = encoder.record(Output(Sequence(5, 0, 1), ReportFault(report)))
    intake = FaultsIntake(TOPICS.faults, COUNT, RING)
    assert record.topic == TOPICS.faults
    assert intake.read(record.partition, record.key, record.value, record.headers) == report


def test_a_report_that_no_key_signs_keeps_its_place_and_says_so() -> None:
    omitted: list[tuple[str, str]] = []
    encoder = Encoder(
        TOPICS, 3, {TOPICS.faults: COUNT}, size_max=lambda _: 1_000_000, encode=encode,
        omitted=lambda channel, reason: omitted.append((channel, reason)),
        sign=lambda *_: None,
    )  # fmt: skip
    report = FaultReport(fault_point="pay", partition=3, failures=1, successes=0, waiting=2)
    record = encoder.record(Output(Sequence(5, 0, 1), ReportFault(report)))
    assert (record.value, dict(record.headers)[headers.OMITTED]) == (b"", b"unsigned")
    assert headers.MAC not in dict(record.headers)
    assert omitted == [("faults", "unsigned")]


def test_orders_are_read_by_the_partition_that_they_name() -> None:
    signer = Signer(TOPICS.events, COUNT, RING)
    intake = Intake(TOPICS.events, COUNT, RING)
    for order in (
        QuotaGranted(partition=4, number=1, fault_point="pay", permits=2, lease_ms=9),
        FaultPointChanged(
            partition=4, number=1, fault_point="pay", state=BreakerState.OPEN, window=1
        ),
    ):
        record = signer.record(order, "k1")
        assert record.partition == 4
        assert intake.read(4, record.key, record.value, record.headers) == order


def test_ticks_and_answers_of_checks_are_read_by_the_actor() -> None:
    signer = Signer(TOPICS.faults, COUNT, RING)
    intake = FaultsIntake(TOPICS.faults, COUNT, RING)
    for event in (
        ClockTick(partition=2, number=7),
        HealthReported(fault_point="pay", number=1, healthy=True),
    ):
        record = signer.record(event, "k1")
        assert intake.read(record.partition, record.key, record.value, record.headers) == event
