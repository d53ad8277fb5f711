"""The keyed MAC of control kinds: HMAC-SHA256 over topic, partition and value.

Header value: `<key id>:` and 32 raw bytes. Input: topic (UTF-8), one zero byte, the partition as a
big-endian int32, the Kafka value; the value holds kind (schema fingerprint), ids and body.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from dalsegno.schemas.errors import DecodeError, Fault, KeyMissing

KEY_BYTES_MIN: Final = 16
KEY_ID_CHARS_MAX: Final = 64
_DIGEST_BYTES: Final = 32


class Keyring:
    """MAC keys by id. Retired keys stay in it, so that old records still verify."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """Raises `ValueError`: an id is 1 to 64 of A-Z a-z 0-9 _ . -, a key at least 16 bytes."""
        for key_id, key in keys.items():
            plain = key_id.isascii() and key_id.translate(_PUNCTUATION).isalnum()
            if not plain or len(key_id) > KEY_ID_CHARS_MAX:
                raise ValueError(f"MAC key id {key_id!r}: use 1 to 64 of A-Z a-z 0-9 _ . -")
            if len(key) < KEY_BYTES_MIN:
                raise ValueError(f"MAC key {key_id!r} has {len(key)} bytes: use at least 16")
        self._keys = dict(keys)

    def __repr__(self) -> str:
        return f"Keyring({sorted(self._keys)})"

    def __contains__(self, key_id: str) -> bool:
        return key_id in self._keys

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, sorted."""
        return tuple(sorted(self._keys))

    def sign(self, key_id: str, topic: str, partition: int, value: bytes) -> bytes:
        """The header value for a record. Raises `KeyMissing` if the id is not in the ring."""
        key = self._keys.get(key_id)
        if key is None:
            raise KeyMissing(key_id)
        return key_id.encode() + b":" + _digest(key, topic, partition, value)

    def verify(
        self,
        header: bytes,
        topic: str,
        partition: int,
        value: bytes,
        in_force: tuple[str, ...] = (),
    ) -> str:
        """The id of the key that signed. `in_force`: ids that the policy lists; empty, all in the
        ring.

        Raises `DecodeError` (unknown_mac_key, bad_mac), or `KeyMissing` for a key that is in force
        and not in the ring.
        """
        key_id = _key_id(header)
        if in_force and key_id not in in_force:
            raise DecodeError(Fault.UNKNOWN_MAC_KEY, f"MAC key {key_id!r} is not in force")
        key = self._keys.get(key_id)
        if key is None:
            if in_force:
                raise KeyMissing(key_id)
            raise DecodeError(Fault.UNKNOWN_MAC_KEY, f"MAC key {key_id!r} is unknown")
        if not hmac.compare_digest(header[-_DIGEST_BYTES:], _digest(key, topic, partition, value)):
            raise DecodeError(Fault.BAD_MAC, f"the MAC by key {key_id!r} does not fit the record")
        return key_id


_PUNCTUATION = str.maketrans("_.-", "aaa")


def _key_id(header: bytes) -> str:
    name, colon = header[: -_DIGEST_BYTES - 1], header[-_DIGEST_BYTES - 1 : -_DIGEST_BYTES]
    if colon != b":" or not 0 < len(name) <= KEY_ID_CHARS_MAX or not name.isascii():
        raise DecodeError(Fault.BAD_MAC, "the MAC header is not `<key id>:` and 32 bytes")
    return name.decode("ascii")


def _digest(key: bytes, topic: str, partition: int, value: bytes) -> bytes:
    head = topic.encode() + b"\0" + partition.to_bytes(4, "big", signed=True)
    return hmac.digest(key, head + value, "sha256")
