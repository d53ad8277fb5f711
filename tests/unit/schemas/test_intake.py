"""The intake: an event of this partition, or a typed reason; and when a process must stop."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract import records

from dalsegno.schemas import codec, headers, kinds
from dalsegno.schemas.control import ClockTick, ErasureRequested
from dalsegno.schemas.errors import KeyMissing, SchemaMissing
from dalsegno.schemas.events import RunEvent, StepReleased
from dalsegno.schemas.intake import Intake, Refusal
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.registry import registry

TOPIC = "dalsegno.events"
RING = Keyring({"k1": b"1" * 32, "k2": b"2" * 32})
INTAKE = Intake(TOPIC, 8, RING)
EVENT = StepReleased(run_id="run-1", step="score", epoch=1)
VALUE = codec.encode(EVENT)
RIGHT = 5  # from Kafka's Java client: test_partitioner.py
TICK = codec.encode(ClockTick(partition=3, number=1))


def signed(value: bytes, partition: int, key_id: str = "k1") -> list[tuple[str, bytes | None]]:
    return [("other", b"x"), (headers.MAC, RING.sign(key_id, TOPIC, partition, value))]


def reason(*args: object, **lists: object) -> str:
    read = INTAKE.read(*args, **lists)  # type: ignore[arg-type]
    assert isinstance(read, Refusal), read
    return read.reason


def test_an_event_in_its_place_is_read() -> None:
    assert INTAKE.read(RIGHT, b"run-1", VALUE) == EVENT


def test_a_wrong_partition_is_refused_with_the_right_number() -> None:
    read = INTAKE.read(4, b"run-1", VALUE)
    assert isinstance(read, Refusal)
    assert (read.reason, read.run_id, read.kind) == ("wrong_partition", "run-1", "StepReleased")
    assert "belongs to partition 5 of 8" in read.detail


@pytest.mark.parametrize("key", [None, b"", b"run-2", b"\xff"])
def test_a_key_that_is_not_the_run_id_is_refused(key: bytes | None) -> None:
    assert reason(RIGHT, key, VALUE) == "wrong_key"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "bad_frame"),
        (b"", "bad_frame"),
        (b"\0\0\0\0\1abc", "bad_frame"),
        (b"\1abcdefghijkl", "bad_frame"),
        (b'{"run_id": "run-1"}', "bad_frame"),
        (b"\xc3\x01" + bytes(8) + VALUE[10:], "unknown_schema"),
        (VALUE[:-1], "bad_body"),
        (VALUE + b"\0", "trailing_bytes"),
        (VALUE + bytes(codec.VALUE_BYTES_MAX), "too_large"),
    ],
)
def test_bytes_that_are_no_record_are_refused(value: bytes | None, expected: str) -> None:
    assert reason(RIGHT, b"run-1", value) == expected


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_only_events_belong_on_the_events_topic(kind: str) -> None:
    value = codec.encode(records.sample(kind))
    read = INTAKE.read(0, b"", value, signed(value, 0))
    refused = isinstance(read, Refusal) and read.reason == "not_an_event"
    assert refused == (kinds.KINDS[kind] not in (*kinds.RUN_EVENTS, *kinds.CONTROL_EVENTS))


def test_control_kinds_need_a_mac_that_fits() -> None:
    assert INTAKE.read(3, b"3", TICK, signed(TICK, 3)) == codec.decode(TICK)
    assert reason(3, b"3", TICK) == "no_mac"
    assert reason(3, b"3", TICK, signed(TICK, 3) * 2) == "no_mac"
    assert reason(3, b"3", TICK, [(headers.MAC, None)]) == "no_mac"
    assert reason(3, b"3", TICK, signed(TICK, 4)) == "bad_mac"
    forged = codec.encode(ClockTick(partition=3, number=2))
    assert reason(3, b"3", forged, signed(TICK, 3)) == "bad_mac"
    other_topic = Intake("other.events", 8, RING).read(3, b"3", TICK, signed(TICK, 3))
    assert isinstance(other_topic, Refusal)
    for header in (b"", b"k1:", b"k1" + bytes(33), b"\xff:" + bytes(32), b":" + bytes(32)):
        assert reason(3, b"3", TICK, [(headers.MAC, header)]) == "bad_mac"
    assert reason(3, b"3", TICK, [(headers.MAC, b"k9:" + bytes(32))]) == "unknown_mac_key"


def test_a_control_kind_goes_where_its_body_says() -> None:
    assert reason(4, b"3", TICK, signed(TICK, 4)) == "wrong_partition"
    erasure = codec.encode(
        ErasureRequested(run_id="run-1", erasure_id="e", requested_by="ann", reason="")
    )
    assert INTAKE.read(RIGHT, b"run-1", erasure, signed(erasure, RIGHT)) == codec.decode(erasure)
    assert reason(1, b"run-1", erasure, signed(erasure, 1)) == "wrong_partition"
    assert reason(RIGHT, b"x", erasure, signed(erasure, RIGHT)) == "wrong_key"


def test_what_the_policy_lists_and_the_process_lacks_stops_the_partition() -> None:
    strange = b"\xc3\x01" + bytes(8) + b"body"
    known = registry().newest("StepReleased").fingerprint
    with pytest.raises(SchemaMissing, match="0000000000000000 is in force"):
        INTAKE.read(RIGHT, b"run-1", strange, schemas=(known, bytes(8)))
    poor = Intake(TOPIC, 8, Keyring({"k1": b"1" * 32}))
    with pytest.raises(KeyMissing, match="'k2' is in force"):
        poor.read(3, b"3", TICK, signed(TICK, 3, "k2"), mac_keys=("k1", "k2"))


def test_what_the_policy_does_not_list_is_a_dead_letter() -> None:
    assert reason(RIGHT, b"run-1", VALUE, schemas=(bytes(8),)) == "unknown_schema"
    assert reason(3, b"3", TICK, signed(TICK, 3, "k2"), mac_keys=("k1",)) == "unknown_mac_key"
    known = registry().newest("StepReleased").fingerprint
    assert INTAKE.read(RIGHT, b"run-1", VALUE, schemas=(known,)) == EVENT


@given(
    value=st.binary(max_size=100) | st.binary(max_size=90).map(lambda tail: VALUE[:10] + tail),
    key=st.none() | st.binary(max_size=10),
    header=st.none() | st.binary(max_size=50),
)
@settings(max_examples=500, deadline=None)
def test_nothing_that_arrives_raises(value: bytes, key: bytes | None, header: bytes | None) -> None:
    read = INTAKE.read(0, key, value, [(headers.MAC, header)])
    assert isinstance(read, Refusal) or partition_for(read.run_id, 8) == 0  # type: ignore[union-attr]


def test_one_bad_record_costs_only_itself() -> None:
    """Ten records, one cut at a value boundary and one empty: two refusals, eight events."""
    cut = VALUE[: VALUE.index(b"score") + len(b"score")]
    batch = [VALUE] * 4 + [cut] + [VALUE] * 3 + [b""] + [VALUE]
    read = [INTAKE.read(RIGHT, b"run-1", value) for value in batch]
    assert [i for i, each in enumerate(read) if isinstance(each, Refusal)] == [4, 8]
    assert sum(isinstance(each, RunEvent) for each in read) == 8
