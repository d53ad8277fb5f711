"""The Confluent wire format: read by what the policy lists, and by nothing else."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract import records

from dalsegno.ops.policy_file import describe, load_policy
from dalsegno.schemas import codec
from dalsegno.schemas.confluent import MAGIC, frame
from dalsegno.schemas.control import ClockTick, Policy, RegistryId
from dalsegno.schemas.errors import SchemaMissing
from dalsegno.schemas.events import RunEvent, StepReleased
from dalsegno.schemas.intake import Intake, Refusal
from dalsegno.schemas.kinds import RUN_EVENTS
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.registry import registry

INTAKE = Intake("dalsegno.events", 8, Keyring({"k1": b"1" * 32}))
EVENT = StepReleased(run_id="run-1", step="score", epoch=1)
RIGHT = 5
RELEASED = RegistryId(id=17, fingerprint=registry().newest("StepReleased").fingerprint)
TICK = RegistryId(id=18, fingerprint=registry().newest("ClockTick").fingerprint)
STRANGE = RegistryId(id=19, fingerprint=bytes(8))
LISTED = (RELEASED, TICK, STRANGE)


def read(value: bytes, listed: tuple[RegistryId, ...] = LISTED, **lists: object) -> object:
    return INTAKE.read(RIGHT, b"run-1", value, registry_ids=listed, **lists)  # type: ignore[arg-type]


def reason(value: bytes, listed: tuple[RegistryId, ...] = LISTED, **lists: object) -> str:
    found = read(value, listed, **lists)
    assert isinstance(found, Refusal), found
    return found.reason


def test_an_event_under_a_listed_id_is_the_event_that_it_is_without() -> None:
    value = frame(17, codec.encode(EVENT))
    assert value[:5] == b"\x00\x00\x00\x00\x11"
    assert read(value) == read(codec.encode(EVENT)) == EVENT


def test_an_id_that_is_not_listed_is_a_typed_refusal_that_says_what_to_do() -> None:
    found = read(frame(4711, codec.encode(EVENT)))
    assert isinstance(found, Refusal)
    assert found.reason == "unknown_schema"
    assert "schema id 4711" in found.detail
    assert "dalsegno schemas register" in found.detail


def test_without_a_list_the_format_is_not_read() -> None:
    assert reason(frame(17, codec.encode(EVENT)), ()) == "bad_frame"


@pytest.mark.parametrize("size", range(1, 5))
def test_a_cut_head_is_a_bad_frame(size: int) -> None:
    assert reason(frame(17, codec.encode(EVENT))[:size]) == "bad_frame"


def test_the_body_is_read_whole_or_not_at_all() -> None:
    value = frame(17, codec.encode(EVENT))
    assert reason(value + b"\0") == "trailing_bytes"
    assert reason(value[:-1]) == "bad_body"


def test_a_listed_schema_that_this_code_lacks_stops_the_partition() -> None:
    value = frame(19, codec.encode(EVENT))
    with pytest.raises(SchemaMissing):
        read(value)
    with pytest.raises(SchemaMissing):
        read(value, schemas=(bytes(8),))
    assert reason(value, schemas=(RELEASED.fingerprint,)) == "unknown_schema"


def test_a_schema_that_is_not_in_force_is_refused_under_an_id_too() -> None:
    value = frame(17, codec.encode(EVENT))
    assert reason(value, schemas=(TICK.fingerprint,)) == "unknown_schema"


def test_control_kinds_come_in_single_object_encoding_only() -> None:
    tick = codec.encode(ClockTick(partition=RIGHT, number=1))
    assert reason(frame(18, tick)) == "not_an_event"


def test_a_new_list_holds_from_the_next_record_on() -> None:
    value = frame(20, codec.encode(EVENT))
    assert reason(value) == "unknown_schema"
    wider = (*LISTED, msgspec.structs.replace(RELEASED, id=20))
    assert read(value, wider) == EVENT
    assert reason(value) == "unknown_schema"


@given(st.sampled_from(RUN_EVENTS).flatmap(lambda cls: records.of_kind(cls.__name__)))
@settings(max_examples=100, deadline=None)
def test_every_run_event_is_the_same_in_both_formats(event: RunEvent) -> None:
    newest = registry().newest(type(event).__name__)
    listed = (RegistryId(id=2**31 - 1, fingerprint=newest.fingerprint),)
    place = (partition_for(event.run_id, 8), event.run_id.encode())
    value = frame(2**31 - 1, codec.encode(event))
    assert INTAKE.read(*place, value, registry_ids=listed) == event


@given(tail=st.binary(max_size=60), number=st.integers(0, 20))
@settings(max_examples=300, deadline=None)
def test_nothing_that_arrives_raises(tail: bytes, number: int) -> None:
    value = MAGIC + number.to_bytes(4, "big") + tail
    found = INTAKE.read(0, b"x", value, registry_ids=(RELEASED, TICK))
    assert isinstance(found, Refusal)


def test_a_policy_file_has_the_ids_as_a_table(tmp_path: pytest.TempPathFactory) -> None:
    policy = Policy(registry_ids=(RELEASED, TICK))
    said = describe(policy)["registry_ids"]
    assert said == {"17": RELEASED.fingerprint.hex(), "18": TICK.fingerprint.hex()}
    file = tmp_path / "policy.json"  # type: ignore[operator]
    file.write_bytes(msgspec.json.encode({"registry_ids": said}))
    assert load_policy(file, Policy()) == policy
