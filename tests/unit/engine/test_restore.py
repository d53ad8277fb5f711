"""Reading a changelog back: our own claim is where it ends."""

from __future__ import annotations

from dataclasses import dataclass

from dalsegno.schemas.codec import encode
from dalsegno.schemas.outputs import Claim
from dalsegno.streams.engine.restore import CLAIM_KEY, _take


@dataclass(frozen=True)
class Message:
    found_key: bytes
    found_value: bytes | None

    def key(self) -> bytes:
        return self.found_key

    def value(self) -> bytes | None:
        return self.found_value


def claim(claim_id: str) -> Message:
    record = Claim(
        partition=0,
        owner="o",
        url="",
        claim_id=claim_id,
        rules_known=(1,),
        code_version="0",
        claimed_at_ms=0,
    )
    return Message(CLAIM_KEY, encode(record))


def test_a_newer_owners_checkpoint_behind_our_claim_is_not_read() -> None:
    parts: dict[bytes, bytes | None] = {}
    messages = [
        claim("older"),
        Message(b"rA", b"1"),
        Message(b"rB", b"1"),
        claim("ours"),
        claim("newer"),
        Message(b"rA", b"2"),
        Message(b"rB", None),
    ]
    assert _take(messages, parts, "ours") == 4  # type: ignore[arg-type]
    assert parts == {b"rA": b"1", b"rB": b"1"}


def test_without_our_claim_reading_goes_on() -> None:
    parts: dict[bytes, bytes | None] = {}
    assert not _take([claim("older"), Message(b"rA", b"1"), Message(b"rA", None)], parts, "ours")  # type: ignore[arg-type]
    assert parts == {b"rA": None}
