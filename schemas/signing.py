"""The signature of a person's decision: Ed25519, by a key whose public half stands in the policy.

Header value: `<key id>:` and 64 raw bytes. What is signed: `dalsegno decision`, one zero byte, the
events topic (UTF-8), one zero byte, the Kafka value; the value names run, package and digest.

The check itself is a function that is passed in: the contract needs no library for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from dalsegno.schemas.control import DecisionKey, DecisionMade
from dalsegno.schemas.errors import DecodeError, Fault, KeyMissing

SIGNATURE_BYTES: Final = 64
PUBLIC_KEY_BYTES: Final = 32
KEY_ID_CHARS_MAX: Final = 64
_CONTEXT: Final = b"dalsegno decision\0"

Verify: TypeAlias = Callable[[bytes, bytes, bytes], bool]
"""(public key, signature, message): whether the signature is of this message by this key."""


class NoVerifierError(KeyMissing):
    """This process cannot check signatures, so it cannot say what becomes of a decision."""

    def __init__(self) -> None:
        super().__init__("of decisions")


def signed_message(topic: str, value: bytes) -> bytes:
    """What a decision's signature is made over."""
    return _CONTEXT + topic.encode() + b"\0" + value


def signature_header(key_id: str, signature: bytes) -> bytes:
    """The header value. Raises `ValueError` for an id that cannot stand in a header."""
    if key_id_fault(key_id):
        raise ValueError(f"key id {key_id!r}: {key_id_fault(key_id)}")
    return key_id.encode("ascii") + b":" + signature


def key_id_fault(key_id: str) -> str:
    """Why a key id cannot be used, or an empty text."""
    if not 0 < len(key_id) <= KEY_ID_CHARS_MAX or not key_id.isascii():
        return f"use 1 to {KEY_ID_CHARS_MAX} ASCII characters"
    if not key_id.translate(_PUNCTUATION).isalnum():
        return "use A-Z a-z 0-9 _ . -"
    return ""


_PUNCTUATION: Final = str.maketrans("_.-", "aaa")


def check_decision(
    event: DecisionMade,
    topic: str,
    value: bytes,
    found: bytes | None,
    *,
    keys: tuple[DecisionKey, ...],
    verify: Verify | None,
) -> None:
    """Raises `DecodeError` unless the decision is signed by a key in force, by its holder.

    Raises `NoVerifierError` when this process has no way to check.
    """
    if found is None:
        raise DecodeError(Fault.NO_SIGNATURE, "a decision is signed by the person who made it")
    name, colon, signature = (
        found[: -SIGNATURE_BYTES - 1],
        found[-SIGNATURE_BYTES - 1 : -SIGNATURE_BYTES],
        found[-SIGNATURE_BYTES:],
    )
    if colon != b":" or not name.isascii() or key_id_fault(name.decode("ascii")):
        raise DecodeError(
            Fault.BAD_SIGNATURE, "the signature header is not `<key id>:` and 64 bytes"
        )
    key_id = name.decode("ascii")
    key = next((each for each in keys if each.key_id == key_id), None)
    if key is None:
        raise DecodeError(
            Fault.UNKNOWN_DECISION_KEY, f"the policy lists no decision key {key_id!r}"
        )
    if verify is None:
        raise NoVerifierError
    if not verify(key.public_key, signature, signed_message(topic, value)):
        raise DecodeError(
            Fault.BAD_SIGNATURE, f"the signature by key {key_id!r} does not fit the decision"
        )
    if event.decided_by != key.holder:
        raise DecodeError(
            Fault.WRONG_SIGNER, f"key {key_id!r} is {key.holder!r}'s, not {event.decided_by!r}'s"
        )
