"""The digest of a state, from its parts: equal states have equal digests."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b


def digest_of(parts: Mapping[bytes, bytes]) -> bytes:
    """32 bytes, of every part's key and value with their lengths, in the order of the keys."""
    digest = blake2b(digest_size=32)
    for key, value in sorted(parts.items()):
        digest.update(len(key).to_bytes(4, "big") + key)
        digest.update(len(value).to_bytes(4, "big") + value)
    return digest.digest()
