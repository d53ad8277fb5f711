"""What is taken from the faults topic, and what is not."""

import msgspec
import pytest

from dalsegno.schemas import codec, headers
from dalsegno.schemas.control import BreakerState, ClockTick, FaultPointChanged, Policy, PolicySet
from dalsegno.schemas.errors import KeyMissing, SchemaMissing
from dalsegno.schemas.events import RunCancelled
from dalsegno.schemas.faults import FaultPointSet, HandAction, HealthReported
from dalsegno.schemas.faults_intake import FaultsIntake
from dalsegno.schemas.intake import Refusal
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.outputs import FaultReport
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.registry import registry

TOPIC, COUNT = "t.faults", 4
RING = Keyring({"k1": b"0" * 32})
INTAKE = FaultsIntake(TOPIC, COUNT, RING)
HOME = partition_for("pay", COUNT)
REPORT = FaultReport(fault_point="pay", partition=1, failures=1, successes=0, waiting=0)
HAND = FaultPointSet(
    fault_point="pay",
    request_id="r",
    action=HandAction.OPEN,
    decided_by="ada",
    reason="drill",
    number=1,
)


def read(
    record: msgspec.Struct,
    *,
    partition: int = HOME,
    key: bytes = b"pay",
    signed_for: int = HOME,
    schemas: tuple[bytes, ...] = (),
) -> object:
    value = codec.encode(record)
    mac = RING.sign("k1", TOPIC, signed_for, value)
    return INTAKE.read(partition, key, value, [(headers.MAC, mac)], schemas=schemas)


@pytest.mark.parametrize(
    "record",
    [
        REPORT,
        HAND,
        HealthReported(fault_point="pay", number=1, healthy=True),
        ClockTick(partition=HOME, number=1),
        PolicySet(partition=HOME, number=1, policy=Policy()),
    ],
    ids=lambda record: type(record).__name__,
)
def test_what_belongs_here_is_read(record: msgspec.Struct) -> None:
    assert read(record) == record


@pytest.mark.parametrize(
    "record",
    [
        RunCancelled(run_id="r", request_id="c"),
        FaultPointChanged(
            partition=HOME, number=1, fault_point="pay", state=BreakerState.OPEN, window=1
        ),
    ],
    ids=lambda record: type(record).__name__,
)
def test_what_belongs_elsewhere_is_refused(record: msgspec.Struct) -> None:
    found = read(record)
    assert isinstance(found, Refusal)
    assert found.reason == "not_an_event"


def test_what_the_policy_does_not_list_is_refused_and_what_it_lists_is_read() -> None:
    reports = registry().newest("FaultReport").fingerprint
    assert read(REPORT, schemas=(reports,)) == REPORT
    found = read(HAND, schemas=(reports,))
    assert isinstance(found, Refusal)
    assert found.reason == "unknown_schema"
    assert read(HAND, schemas=(reports, registry().newest("FaultPointSet").fingerprint)) == HAND


def test_a_schema_that_the_policy_lists_and_this_code_lacks_stops_the_partition() -> None:
    value = codec.MARKER + b"\x07" * 8 + b"body"
    with pytest.raises(SchemaMissing, match="upgrade it"):
        INTAKE.read(HOME, b"pay", value, schemas=(b"\x07" * 8,))


def test_a_report_without_a_mac_opens_no_breaker() -> None:
    found = INTAKE.read(HOME, b"pay", codec.encode(REPORT))
    assert isinstance(found, Refusal)
    assert found.reason == "no_mac"


def test_a_mac_for_another_place_does_not_fit() -> None:
    found = read(REPORT, signed_for=(HOME + 1) % COUNT)
    assert isinstance(found, Refusal)
    assert found.reason == "bad_mac"


def test_a_record_in_the_wrong_partition_or_under_the_wrong_key_is_refused() -> None:
    other = (HOME + 1) % COUNT
    wrong = [read(REPORT, partition=other, signed_for=other), read(REPORT, key=b"x")]
    assert [each.reason for each in wrong if isinstance(each, Refusal)] == [
        "wrong_partition", "wrong_key",
    ]  # fmt: skip


def test_a_key_in_force_that_is_missing_stops_the_partition() -> None:
    value = codec.encode(REPORT)
    mac = Keyring({"k2": b"1" * 32}).sign("k2", TOPIC, HOME, value)
    with pytest.raises(KeyMissing):
        INTAKE.read(HOME, b"pay", value, [(headers.MAC, mac)], mac_keys=("k2",))


def test_bytes_that_are_nothing_are_refused() -> None:
    found = INTAKE.read(0, b"x", b"junk")
    assert isinstance(found, Refusal)
    assert found.reason == "bad_frame"
