"""A blob reference: the place of a large value in a context, by its content.

The value itself is kept once in the object store, under the SHA-256 of its packed bytes; a context
holds only this. Packed it is a MessagePack extension of type 1 with 40 bytes: the size as a 64-bit
big-endian number, then the digest. It has one spelling (`c7 28 01 ...`), so a reference can be
found in whatever bytes it was put into, without reading those (`references`).
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from msgspec.msgpack import Ext

from dalsegno.schemas.errors import ValueRefusedError

EXTENSION: Final = 1
DIGEST_BYTES: Final = 32
PACKED_BYTES: Final = 43
"""What a reference takes in a context, however large its value is."""
_SHOWN_CHARS: Final = 12
_PAYLOAD: Final = struct.Struct(">Q32s")
HEAD: Final = bytes((0xC7, _PAYLOAD.size, EXTENSION))
"""How every packed reference begins."""
_SIZE_MAX: Final = 2**63 - 1


class Blob:
    """`digest`: SHA-256 of the value's packed bytes; `size`: how many they are. Never changes.

    Two are equal when both are. As text it is its size and the first digits of its digest.
    """

    __slots__ = ("_digest", "_size")

    def __init__(self, digest: bytes, size: int) -> None:
        """Raises `ValueRefusedError`."""
        if len(digest) != DIGEST_BYTES or not 0 < size <= _SIZE_MAX:
            raise ValueRefusedError("", f"no blob: a digest of {len(digest)} bytes, size {size}")
        self._digest = bytes(digest)
        self._size = size

    @classmethod
    def of(cls, packed: bytes) -> Blob:
        """The reference to a value, from its packed bytes."""
        return cls(hashlib.sha256(packed).digest(), len(packed))

    @property
    def digest(self) -> bytes:
        """SHA-256, 32 bytes."""
        return self._digest

    @property
    def size(self) -> int:
        """Packed bytes of the value."""
        return self._size

    def matches(self, packed: bytes) -> bool:
        """Whether these are the bytes that it refers to."""
        return len(packed) == self._size and hashlib.sha256(packed).digest() == self._digest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blob):
            return NotImplemented
        return self._digest == other._digest and self._size == other._size

    def __hash__(self) -> int:
        return hash((self._digest, self._size))

    def __str__(self) -> str:
        return f"blob {self._digest.hex()[:_SHOWN_CHARS]} of {self._size} bytes"

    def __repr__(self) -> str:
        return f"<{self}>"


def encode_hook(value: object) -> Ext:
    """For msgspec's MessagePack encoder: how a reference is packed."""
    if type(value) is Blob:
        return Ext(EXTENSION, _PAYLOAD.pack(value.size, value.digest))
    raise NotImplementedError(f"a {type(value).__name__} has no packed form")


def decode_hook(code: int, data: memoryview) -> Blob | Ext:
    """For msgspec's MessagePack decoder. Raises `ValueRefusedError` for a reference that is none;
    other extensions are left to whoever checks the value.
    """
    if code != EXTENSION:
        return Ext(code, bytes(data))
    if len(data) != _PAYLOAD.size:
        raise ValueRefusedError("", f"a blob reference of {len(data)} bytes, not {_PAYLOAD.size}")
    size, digest = _PAYLOAD.unpack(data)
    return Blob(digest, size)


def text_hook(value: object) -> str:
    """For JSON encoders: a reference is shown as text."""
    if type(value) is Blob:
        return str(value)
    raise NotImplementedError(f"a {type(value).__name__} has no JSON form")


def references(data: bytes) -> set[bytes]:
    """Digests of all blob references that stand in these bytes, at whatever depth.

    None is missed. Other bytes that look like one are taken for one: who keeps what is found here
    keeps too much at most.
    """
    return {packed[-DIGEST_BYTES:] for packed in packed_references(data)}


def packed_references(data: bytes) -> set[bytes]:
    """The same references as they are packed."""
    found: set[bytes] = set()
    at = data.find(HEAD)
    # Overlapping: what looks like a reference may hide the beginning of a real one.
    while at >= 0:
        end = at + PACKED_BYTES
        if end <= len(data):
            found.add(bytes(data[at:end]))
        at = data.find(HEAD, at + 1)
    return found
