"""The codec: whole records or a typed refusal with its path, in both directions."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.contract import records

from dalsegno.schemas import codec
from dalsegno.schemas.control import ClockTick, PolicySet
from dalsegno.schemas.errors import DecodeError, EncodeError, Fault
from dalsegno.schemas.events import FailureType, RunStarted, StepCompleted, StepFailed, StepReleased
from dalsegno.schemas.kinds import KINDS
from dalsegno.schemas.outputs import Answer
from dalsegno.schemas.plan import Plan, RetryPolicy, StepPlan

STEP = StepCompleted(run_id="run-1", step="score", epoch=3, ops=b"\x90")
FAILED = StepFailed(run_id="r", step="s", epoch=1, failure_type=FailureType.INVALID)
A = StepPlan(name="a")
STARTED = RunStarted(run_id="r", flow="f", flow_version=1, context=b"", plan=Plan(steps=(A,)))
HEAD = codec.encode(STEP)[: codec.HEAD_BYTES]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_record_of_every_kind_comes_back_equal(kind: str, data: st.DataObject) -> None:
    record = data.draw(records.of_kind(kind))
    value = codec.encode(record)
    again = codec.decode(value)
    assert again == record
    assert msgspec.msgpack.encode(again) == msgspec.msgpack.encode(record), "equal, and of one type"
    assert codec.kind_of(value) == kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_cut_and_every_extra_byte_is_refused(kind: str) -> None:
    value = codec.encode(records.sample(kind))
    for length in range(len(value)):
        with pytest.raises(DecodeError) as refusal:
            codec.decode(value[:length])
        assert refusal.value.fault in {Fault.BAD_FRAME, Fault.BAD_BODY}
    for extra in range(256):
        with pytest.raises(DecodeError) as refusal:
            codec.decode(value + bytes([extra]))
        assert refusal.value.fault is Fault.TRAILING_BYTES
    with pytest.raises(DecodeError):
        codec.decode(value + b"JUNK")


@given(record=records.of_any_kind(), data=st.data())
@settings(max_examples=600, deadline=None)
def test_changed_bytes_give_a_record_or_the_typed_refusal(
    record: msgspec.Struct, data: st.DataObject
) -> None:
    value = bytearray(codec.encode(record))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(codec.HEAD_BYTES, len(value) - 1))
        value[at] = data.draw(st.integers(0, 255))
    read = record_or_refusal(bytes(value))
    if isinstance(read, DecodeError):
        assert read.kind == type(record).__name__
        assert codec.HEAD_BYTES <= read.offset <= len(value)
    else:
        assert codec.decode(codec.encode(read)) == read


def record_or_refusal(value: bytes) -> msgspec.Struct | DecodeError:
    try:
        return codec.decode(value)
    except DecodeError as refusal:
        return refusal


@given(body=st.binary(max_size=200), kind=st.sampled_from(list(KINDS)))
@settings(max_examples=400, deadline=None)
def test_random_bodies_raise_only_the_typed_refusal(body: bytes, kind: str) -> None:
    head = codec.encode(records.sample(kind))[: codec.HEAD_BYTES]
    record_or_refusal(head + body)


@pytest.mark.parametrize(
    ("record", "path", "detail"),
    [
        (replace(STEP, epoch=2**31 + 5), "epoch", "range of Avro int"),
        (replace(STEP, epoch=True), "epoch", "expected int, not bool True"),
        (replace(STEP, epoch=3.0), "epoch", "expected int, not float"),
        (replace(STEP, expected_run_version=2**63), "expected_run_version", "long"),
        (replace(STEP, sent_at_ms=-(2**63) - 1), "sent_at_ms", "range of Avro long"),
        (replace(STEP, run_id="a\ud800"), "run_id", "lone surrogate at character 1"),
        (replace(STEP, run_id=b"a"), "run_id", "expected str, not bytes"),
        (replace(STEP, run_id=FailureType.INVALID), "run_id", "not FailureType"),
        (replace(STEP, run_id=None), "run_id", "expected str"),
        (replace(STEP, ops=bytearray(b"x")), "ops", "expected bytes, not bytearray"),
        (replace(STEP, risk_flags=["x"]), "risk_flags", "expected a tuple, not list"),
        (replace(STEP, risk_flags=("x", 1)), "risk_flags[1]", "expected str"),
        (
            replace(FAILED, failure_type="transient"),
            "failure_type",
            "expected a FailureType, not str",
        ),
        (replace(FAILED, retry_after_ms=0.5), "retry_after_ms", "expected int, not float"),
        (
            replace(STARTED, plan=Plan(steps=(A, replace(A, retry=RetryPolicy(max_ms=2**63))))),
            "plan.steps[1].retry.max_ms",
            "range of Avro long",
        ),
        (
            replace(STARTED, plan=RetryPolicy()),
            "plan",
            "expected a Plan",
        ),
        (StepReleased(run_id="r", step="s", epoch=1, reason=None), "reason", "expected str"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_path(
    record: msgspec.Struct, path: str, detail: str
) -> None:
    with pytest.raises(EncodeError, match=re.escape(detail)) as refusal:
        codec.encode(record)
    assert refusal.value.path == path
    assert refusal.value.kind == type(record).__name__


def test_only_kinds_of_the_contract_are_encoded() -> None:
    with pytest.raises(EncodeError, match="not a kind"):
        codec.encode(RetryPolicy())


def test_arrays_beyond_the_limit_are_refused() -> None:
    record = replace(STEP, risk_flags=("",) * 65_537)
    with pytest.raises(EncodeError, match="65537 items"):
        codec.encode(record)


def test_a_record_beyond_the_size_limit_is_neither_written_nor_read() -> None:
    record = replace(STEP, ops=bytes(codec.VALUE_BYTES_MAX))
    with pytest.raises(EncodeError, match="over 16777216"):
        codec.encode(record)
    with pytest.raises(DecodeError) as refusal:
        codec.decode(HEAD + bytes(codec.VALUE_BYTES_MAX))
    assert refusal.value.fault is Fault.TOO_LARGE


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\0\0\0\0\1abc", b"\1" * 12, b'{"run_id": "r"}', b"\xc3", HEAD[:9]]
)
def test_only_the_exact_frame_is_read(value: bytes) -> None:
    with pytest.raises(DecodeError) as refusal:
        codec.decode(value)
    assert refusal.value.fault is Fault.BAD_FRAME
    assert codec.kind_of(value) == ""


def test_an_unknown_fingerprint_is_named() -> None:
    with pytest.raises(DecodeError, match="0102030405060708") as refusal:
        codec.decode(b"\xc3\x01" + bytes(range(1, 9)) + b"\0" * 20)
    assert refusal.value.fault is Fault.UNKNOWN_SCHEMA


# The body of STEP by hand; each piece is one field.
PIECES = {
    "run_id": b"\x0arun-1", "source": b"\0", "sent_at_ms": b"\0", "reply_to": b"\0",
    "step": b"\x0ascore", "epoch": b"\6", "attempt": b"\0", "ops": b"\2\x90",
    "expected_run_version": b"\0", "risk_flags": b"\0", "progress": b"\0",
    "context_schema_version": b"\0",
}  # fmt: skip


def body(**changed: bytes) -> bytes:
    return HEAD + b"".join({**PIECES, **changed}.values())


def test_the_hand_made_body_is_the_records() -> None:
    assert body() == codec.encode(STEP)


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"run_id": b"\x0brun-1"}, "run_id"),  # negative length
        ({"run_id": b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}, "run_id"),  # longest negative
        ({"run_id": b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"}, "run_id"),  # 2**63 - 1 bytes
        ({"run_id": b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"}, "run_id"),  # over 64 bits
        ({"run_id": b"\x80" * 30}, "run_id"),  # a number without an end
        ({"run_id": b"\4\xc3\x28"}, "run_id"),  # not UTF-8
        ({"run_id": b"\6\xed\xa0\x80"}, "run_id"),  # a surrogate in UTF-8's clothes
        ({"source": b"\1", "sent_at_ms": b""}, "source"),  # a step back, read as the next field
        ({"progress": b"\x80" * 9 + b"\2"}, "progress"),  # 2**64 before zigzag
        ({"sent_at_ms": b"\xff" * 9 + b"\x7f"}, "sent_at_ms"),
        ({"epoch": b"\x80\x80\x80\x80\x10"}, "epoch"),  # 2**31
        ({"epoch": b"\x81\x80\x80\x80\x10"}, "epoch"),  # -2**31 - 1
        ({"expected_run_version": b"\4"}, "expected_run_version"),  # no such branch
        ({"expected_run_version": b"\1"}, "expected_run_version"),  # negative branch
        ({"expected_run_version": b"\x80\0"}, "expected_run_version"),  # null in two bytes
        ({"risk_flags": b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"}, "risk_flags"),  # 2**63 - 1
        ({"risk_flags": b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0"}, "risk_flags"),  # -2**63
        ({"risk_flags": b"\xc8\x01" + b"\0" * 50}, "risk_flags"),  # 100 items, 50 bytes
        ({"risk_flags": b"\1\2\2x\0"}, "risk_flags"),  # a block shorter than its size... of 1
        ({"risk_flags": b"\1\xc8\x01\2x\0"}, "risk_flags"),  # a block size beyond the end
        ({"risk_flags": b"\1\5\2x\0"}, "risk_flags"),  # a negative block size
    ],
)
def test_malformed_bodies_are_refused_with_their_path(changed: dict[str, bytes], path: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        codec.decode(body(**changed))
    assert (refusal.value.fault, refusal.value.path) == (Fault.BAD_BODY, path)


@pytest.mark.parametrize(
    "flags",
    [
        b"\4\2x\2y\0",  # one block
        b"\2\2x\2\2y\0",  # two blocks
        b"\3\x08\2x\2y\0",  # a negative count and the block's size
        b"\1\4\2x\2\2y\0",  # mixed
    ],
)
def test_every_form_of_blocks_is_read(flags: bytes) -> None:
    event = codec.decode(body(risk_flags=flags))
    assert event == replace(STEP, risk_flags=("x", "y"))


@pytest.mark.parametrize("number", [b"\xac\x02", b"\xac\x82\0", b"\xac\x82\x80\0"])
def test_numbers_in_more_bytes_than_needed_are_read(number: bytes) -> None:
    assert codec.decode(body(progress=number)) == replace(STEP, progress=150)


@pytest.mark.parametrize(
    "n", [0, 1, -1, 63, 64, -64, -65, 1023, 1024, 2**34 - 1, 2**34, 2**41 - 1, 2**41, -(2**41),
          2**62, 2**63 - 1, -(2**63), 1_764_460_000_123, -1_764_460_000_123]
)  # fmt: skip
def test_numbers_at_the_borders_of_the_short_ways_come_back(n: int) -> None:
    tick = ClockTick(partition=1, number=n, sent_at_ms=n)
    assert codec.decode(codec.encode(tick)) == tick


def test_a_bomb_of_array_counts_allocates_nothing() -> None:
    """A hundred thousand claims of 2**62 elements each: refused at the first, in no time."""
    bomb = (
        HEAD + b"".join(list(PIECES.values())[:9]) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" * 10**5
    )
    with pytest.raises(DecodeError):
        codec.decode(bomb)


def test_empty_elements_cannot_pass_the_item_limit() -> None:
    blocks = b"\x80\x80\x08" + bytes(65_536)  # 65,536 empty texts
    many = codec.decode(body(risk_flags=blocks + b"\0"))
    assert isinstance(many, StepCompleted)
    assert len(many.risk_flags) == 65_536
    with pytest.raises(DecodeError) as refusal:
        codec.decode(body(risk_flags=blocks + b"\2\0\0"))
    assert refusal.value.path == "risk_flags"


def test_the_same_plan_is_one_object_and_a_like_one_is_not() -> None:
    steps = tuple(StepPlan(name=f"step-{i}", goal="x" * 100) for i in range(8))
    one = RunStarted(run_id="a", flow="f", flow_version=1, plan=Plan(steps=steps), context=b"")
    other = replace_last_goal(one)
    first, second = codec.decode(codec.encode(one)), codec.decode(codec.encode(one))
    third = codec.decode(codec.encode(other))
    assert isinstance(first, RunStarted)
    assert isinstance(second, RunStarted)
    assert first.plan is second.plan
    assert third == other


def replace_last_goal(event: RunStarted) -> RunStarted:
    steps = (*event.plan.steps[:-1], replace(event.plan.steps[-1], goal="y" * 100))
    return replace(event, plan=Plan(steps=steps))


def test_a_plan_cut_short_is_refused_even_when_it_was_seen_whole() -> None:
    value = codec.encode(records.sample("RunStarted"))
    assert codec.decode(value)
    for length in range(codec.HEAD_BYTES, len(value)):
        with pytest.raises(DecodeError):
            codec.decode(value[:length])


def test_null_and_defaults_stay_apart() -> None:
    answer = Answer(reply_to="a", run_id="r", answer=records.sample("Answer").answer)
    assert codec.decode(codec.encode(answer)) == answer
    policy = records.sample("PolicySet")
    assert isinstance(policy, PolicySet)
    assert codec.decode(codec.encode(policy)) == policy


@pytest.mark.parametrize(
    "value", [None, b"", b"9", codec.encode(STEP)[:-1], codec.MARKER + b"x" * 8]
)
def test_what_is_no_record_of_this_kind_is_none(value: bytes | None) -> None:
    assert codec.decode_if(StepCompleted, codec.encode(STEP)) == STEP
    assert codec.decode_if(RunStarted, codec.encode(STEP)) is None
    assert codec.decode_if(StepCompleted, value) is None
