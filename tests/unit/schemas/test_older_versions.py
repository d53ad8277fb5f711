"""Records written by older schema versions come out as today's classes."""

import io
import json
from typing import Any

import fastavro
import pytest

from dalsegno.schemas.codec import MARKER, Codec
from dalsegno.schemas.errors import DecodeError, Fault
from dalsegno.schemas.events import FailureType, StepFailed, StepReleased
from dalsegno.schemas.outputs import Answer, AnswerType
from dalsegno.schemas.registry import build, registry


def older(kind: str, **changed: Any) -> dict[str, Any]:
    """The newest schema of a kind without some fields (None), or with others in their place."""
    schema = json.loads(registry().newest(kind).text)
    fields = []
    for field in schema["fields"]:
        if field["name"] not in changed:
            fields.append(field)
        elif changed[field["name"]] is not None:
            fields.append(changed[field["name"]])
    extra = [field for name, field in changed.items() if field and field not in fields]
    return {**schema, "fields": fields + extra}


def written(kind: str, old: dict[str, Any], record: dict[str, Any]) -> tuple[Codec, bytes]:
    """A codec that knows `old` as version 1 and today's as version 2, and bytes by version 1."""
    schemas = build({(kind, 1): json.dumps(old), (kind, 2): registry().newest(kind).text})
    out = io.BytesIO()
    fastavro.schemaless_writer(out, old, record)
    return Codec(schemas), MARKER + schemas.by_kind[kind][0].fingerprint + out.getvalue()


BASE = {
    "run_id": "r", "source": "s", "sent_at_ms": 5, "reply_to": "",
    "step": "a", "epoch": 2, "attempt": 0,
}  # fmt: skip


def test_fields_that_came_later_take_their_defaults() -> None:
    codec, value = written("StepReleased", older("StepReleased", reason=None), BASE)
    expected = StepReleased(run_id="r", source="s", sent_at_ms=5, step="a", epoch=2)
    assert codec.decode(value) == expected
    assert codec.encode(expected) != value, "written by the newest version"


def test_fields_that_are_gone_are_read_and_dropped() -> None:
    gone = {"type": "array", "items": {"type": "record", "name": "Gone", "fields": [
        {"name": "x", "type": ["null", "string"]}, {"name": "y", "type": "bytes"}]}}  # fmt: skip
    old = older("StepReleased", gone={"name": "gone", "type": gone})
    record = {**BASE, "reason": "full", "gone": [{"x": None, "y": b"1"}, {"x": "t", "y": b""}]}
    codec, value = written("StepReleased", old, record)
    assert codec.decode(value) == StepReleased(
        run_id="r", source="s", sent_at_ms=5, step="a", epoch=2, reason="full"
    )
    with pytest.raises(DecodeError):
        codec.decode(value[:-1])


def test_numbers_widen_and_plain_values_become_optional() -> None:
    old = older(
        "StepFailed",
        progress={"name": "progress", "type": "int"},
        retry_after_ms={"name": "retry_after_ms", "type": "int"},
    )
    record = {
        **BASE, "failure_type": "invalid", "error_class": "", "message": "", "missing_fields": [],
        "advice": "", "retry_after_ms": 70_000, "dependency": "", "risk_flags": [], "progress": -9,
    }  # fmt: skip
    codec, value = written("StepFailed", old, record)
    read = codec.decode(value)
    assert isinstance(read, StepFailed)
    assert (read.retry_after_ms, read.progress) == (70_000, -9)
    assert read.failure_type is FailureType.INVALID


def test_symbols_of_another_order_keep_their_meaning_and_unknown_ones_are_refused() -> None:
    symbols = ["ended", "gone", "accepted"]
    answer = {"type": "enum", "name": "AnswerType", "symbols": symbols}
    old = older("Answer", answer={"name": "answer", "type": answer})
    record = {
        "reply_to": "w", "run_id": "r", "step": "", "epoch": 0, "kind": "", "reason": "",
        "detail": "", "current_epoch": 0, "run_state": None, "run_version": 0, "context": b"",
        "context_omitted": False,
    }  # fmt: skip
    codec, value = written("Answer", old, {**record, "answer": "accepted"})
    assert codec.decode(value) == Answer(reply_to="w", run_id="r", answer=AnswerType.ACCEPTED)
    codec, value = written("Answer", old, {**record, "answer": "gone"})
    with pytest.raises(DecodeError, match="today's schema") as refusal:
        codec.decode(value)
    assert refusal.value.fault is Fault.BAD_BODY


def test_a_version_that_this_code_lacks_is_refused_by_its_fingerprint() -> None:
    old = older("StepReleased", reason=None)
    _, value = written("StepReleased", old, BASE)
    with pytest.raises(DecodeError) as refusal:
        Codec(registry()).decode(value)
    assert refusal.value.fault is Fault.UNKNOWN_SCHEMA
