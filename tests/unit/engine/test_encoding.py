"""Outputs as records: place, headers, and what cannot be sent."""

from __future__ import annotations

from dalsegno.schemas import headers
from dalsegno.schemas.codec import decode, encode
from dalsegno.schemas.outputs import Answer, AnswerType, DeadLetter, Outcome, Transition
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.actions import Action, Audit, Output, PutAside, Reply
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine.encoding import Encoder, OutRecord

TOPICS = Topics("t")


def transition(**more: object) -> Transition:
    values: dict[str, object] = {
        "run_id": "r", "cause": "c", "cause_offset": 5, "at_ms": 1, "outcome": Outcome.APPLIED,
        "reason": "", "run_version_before": 0, "run_version_after": 1, "run_state_before": None,
        "run_state_after": None,
    }  # fmt: skip
    return Transition(**{**values, **more})  # type: ignore[arg-type]


def record(action: Action, size_max: int = 1_000) -> tuple[OutRecord, list[tuple[str, str]]]:
    omitted: list[tuple[str, str]] = []
    encoder = Encoder(
        TOPICS,
        3,
        {TOPICS.control: 7, TOPICS.faults: 7},
        size_max=lambda _topic: size_max,
        encode=encode,
        omitted=lambda channel, reason: omitted.append((channel, reason)),
    )
    return encoder.record(Output(Sequence(5, 0, 9), action)), omitted


def test_an_ordered_output_goes_to_the_partition_of_its_source_with_its_sequence() -> None:
    made, _ = record(Audit(transition()))
    assert (made.topic, made.partition, made.key) == ("t.transitions", 3, b"r")
    assert made.headers == [(headers.SEQUENCE, Sequence(5, 0, 9).pack())]
    assert decode(made.value) == transition()


def test_an_answer_goes_by_its_own_key_and_says_where_it_comes_from() -> None:
    answer = Answer(reply_to="w1", run_id="r", answer=AnswerType.ACCEPTED)
    made, _ = record(Reply(answer))
    assert made.partition == partition_for("w1", 7)
    assert (headers.SOURCE, (3).to_bytes(4, "big")) in made.headers


def test_a_dead_letter_keeps_the_original_bytes_and_headers() -> None:
    letter = DeadLetter(topic="t.events", partition=3, offset=5, at_ms=1, reason="x", detail="")
    made, _ = record(PutAside(letter, b"k", b"\xff", (("h", b"1"),)))
    assert (made.key, made.value, made.headers[0]) == (b"k", b"\xff", ("h", b"1"))
    assert decode(dict(made.headers)[headers.DEAD_LETTER]) == letter


def test_a_value_that_is_too_large_keeps_its_place_in_the_order() -> None:
    made, omitted = record(Audit(transition(diff=b"x" * 2_000)))
    assert made.value == b""
    assert dict(made.headers)[headers.OMITTED] == b"too_large"
    assert dict(made.headers)[headers.SEQUENCE] == Sequence(5, 0, 9).pack()
    assert omitted == [("transitions", "too_large")]


def test_a_value_that_cannot_be_encoded_keeps_its_place_too() -> None:
    made, omitted = record(Audit(transition(detail="\ud800")))
    assert made.value == b""
    assert omitted == [("transitions", "encode_EncodeError")]
