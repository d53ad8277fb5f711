"""Keyrings and MACs."""

import hashlib
import hmac

import pytest

from dalsegno.schemas.errors import DecodeError, KeyMissing
from dalsegno.schemas.mac import Keyring

KEY = bytes(range(32))


def test_the_header_is_the_documented_one() -> None:
    expected = hmac.new(KEY, b"t\0\0\0\0\x07value", hashlib.sha256).digest()
    assert Keyring({"a": KEY}).sign("a", "t", 7, b"value") == b"a:" + expected


def test_retired_keys_still_verify_while_in_force() -> None:
    old, ring = Keyring({"old": KEY}), Keyring({"old": KEY, "new": b"n" * 32})
    header = old.sign("old", "t", 0, b"v")
    assert ring.verify(header, "t", 0, b"v") == "old"
    assert ring.verify(header, "t", 0, b"v", ("old", "new")) == "old"
    with pytest.raises(DecodeError, match="not in force"):
        ring.verify(header, "t", 0, b"v", ("new",))


def test_any_changed_bit_fails() -> None:
    ring = Keyring({"a": KEY})
    header = ring.sign("a", "t", 7, b"value")
    for bit in range(8 * (len(header) - 2)):
        changed = bytearray(header)
        changed[2 + bit // 8] ^= 1 << bit % 8
        with pytest.raises(DecodeError):
            ring.verify(bytes(changed), "t", 7, b"value")


@pytest.mark.parametrize("key_id", ["", "a:b", "ä", "a b", "x" * 65])
def test_ids_that_a_header_cannot_carry_are_refused(key_id: str) -> None:
    with pytest.raises(ValueError, match="MAC key id"):
        Keyring({key_id: KEY})


def test_short_keys_are_refused_and_keys_are_never_shown() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        Keyring({"a": b"short"})
    ring = Keyring({"a-1_b.c": b"s3cr3t-s3cr3t-s3cr3t"})
    assert "s3cr3t" not in repr(ring)
    assert ring.ids == ("a-1_b.c",)


def test_signing_with_an_unknown_key_says_which() -> None:
    with pytest.raises(KeyMissing, match="'b'"):
        Keyring({"a": KEY}).sign("b", "t", 0, b"")
