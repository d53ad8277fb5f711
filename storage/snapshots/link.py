"""One link of a snapshot chain, as bytes.

    magic "dsn1" · format version u8 · header length u32 · header · payload · SHA-256 of all before

Numbers are big-endian. The header is a MessagePack array (`Header`), the payload a zstd frame or,
where that is no smaller, the bytes themselves. The digest is checked first: what was cut, extended
or changed by a bit is refused before its header is read.
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum
from typing import Final

import msgspec

from dalsegno.storage.frame import Frame, FrameError, decompress
from dalsegno.storage.snapshots.errors import Fault, SnapshotCorrupt

MAGIC: Final = b"dsn1"
FORMAT: Final = 1
PAYLOAD_BYTES_MAX: Final = 64 << 20
"""A link never unpacks to more, whatever it says of itself."""
HEADER_BYTES_MAX: Final = 64 << 10

_FIXED: Final = struct.Struct(">4sBI")
_DIGEST_BYTES: Final = 32


class LinkKind(IntEnum):
    """What a payload is."""

    BASE = 0
    """A whole context, without a dictionary: a chain begins here."""
    WHOLE = 1
    """A whole context, compressed by the chain so far: where that is smaller than operations."""
    DELTA = 2
    """Operations on the context of the link before."""


class Version(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A run version that a link holds: with the first `operations` of its payload applied.

    `offset`: of the event that made it. `settled`: places of steps, and how each stands since:
    completed (1), skipped (2), compensated (3), none of these any more (0). A base tells of all
    settled steps, other links of those whose standing changed.
    """

    number: int
    operations: int
    step: str
    at_ms: int
    offset: int
    state: str
    flags: tuple[str, ...] = ()
    settled: tuple[tuple[int, int], ...] = ()


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What a link says of itself.

    `step` completed last; `run_version` is the run's version after it. `dependencies` are those
    that the plan declares. `at_ms`: broker time of the event. `context_bytes`: packed size of the
    context at this link. `payload_bytes`: of the unpacked payload, `stored_bytes` of the stored
    one; equal when it is stored as it is. `previous`: digest of the link before, empty for a base.
    `by_dictionary`: the payload is compressed by what the chain's payloads end with. `versions`:
    those that the link holds, the last of them `run_version`; only a delta holds more than one.
    `began_ms`: when the run started, since an id may be used again. `field_versions`: context
    fields that are of another schema version than `schema_version`, in all of its versions.
    """

    kind: LinkKind
    run_id: str
    step: str
    run_version: int
    plan_digest: bytes
    schema: str
    schema_version: int
    dependencies: tuple[str, ...]
    at_ms: int
    context_bytes: int
    payload_bytes: int
    stored_bytes: int
    previous: bytes
    by_dictionary: bool = False
    versions: tuple[Version, ...] = ()
    began_ms: int = 0
    field_versions: tuple[tuple[str, int], ...] = ()


class Link(msgspec.Struct, frozen=True, gc=False):
    """A link whose digest is right. `stored` is its payload as it stands there."""

    header: Header
    stored: bytes
    digest: bytes

    def payload(self, dictionary: bytes) -> bytes:
        """The payload, unpacked. Raises `SnapshotCorrupt`."""
        header = self.header
        if header.stored_bytes == header.payload_bytes:
            return self.stored
        needed = dictionary if header.by_dictionary else b""
        try:
            return decompress(self.stored, header.payload_bytes, needed)
        except FrameError as error:
            raise SnapshotCorrupt(header.run_id, Fault.FRAME, str(error)) from error


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Header).decode


def write_link(header: Header, payload: bytes, frame: Frame) -> tuple[bytes, Link]:
    """The link as bytes, and as `read_link` gives it. `frame` holds `payload`; what the header says
    of both is set here.
    """
    header = msgspec.structs.replace(
        header,
        payload_bytes=len(payload),
        stored_bytes=len(frame.data),
        by_dictionary=frame.by_dictionary,
    )
    packed = _encode(header)
    body = _FIXED.pack(MAGIC, FORMAT, len(packed)) + packed + frame.data
    digest = hashlib.sha256(body).digest()
    return body + digest, Link(header, frame.data, digest)


def read_link(run_id: str, data: bytes) -> Link:
    """A link of this run, verified. Raises `SnapshotCorrupt`."""
    if len(data) < _FIXED.size + _DIGEST_BYTES:
        raise SnapshotCorrupt(run_id, Fault.TRUNCATED, f"{len(data)} bytes are no link")
    magic, version, header_bytes = _FIXED.unpack_from(data)
    if magic != MAGIC:
        raise SnapshotCorrupt(run_id, Fault.MAGIC, f"it begins with {magic!r}")
    if version != FORMAT:
        detail = f"format {version}, this code reads {FORMAT}: upgrade it"
        raise SnapshotCorrupt(run_id, Fault.FORMAT, detail)
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise _damaged(run_id, data, header_bytes)
    header = _header(run_id, body[_FIXED.size : _FIXED.size + header_bytes], header_bytes)
    stored = body[_FIXED.size + header_bytes :]
    if header.run_id != run_id:
        raise SnapshotCorrupt(run_id, Fault.RUN, f"it is of run {header.run_id!a}")
    if len(stored) != header.stored_bytes:
        detail = f"its payload has {len(stored)} bytes, its header says {header.stored_bytes}"
        raise SnapshotCorrupt(run_id, Fault.HEADER, detail)
    return Link(header, stored, digest)


def _header(run_id: str, packed: bytes, declared: int) -> Header:
    if declared > HEADER_BYTES_MAX or len(packed) != declared:
        raise SnapshotCorrupt(run_id, Fault.HEADER, f"a header of {declared} bytes")
    try:
        header = _decode(packed)
    except msgspec.MsgspecError as error:
        raise SnapshotCorrupt(run_id, Fault.HEADER, str(error)) from error
    sizes = (header.context_bytes, header.payload_bytes, header.stored_bytes)
    if min(*sizes, header.run_version, header.at_ms) < 0:
        raise SnapshotCorrupt(run_id, Fault.HEADER, "a number below zero")
    numbers = [version.number for version in header.versions]
    if numbers and (numbers != sorted(set(numbers)) or numbers[-1] != header.run_version):
        raise SnapshotCorrupt(run_id, Fault.HEADER, f"versions {numbers[:4]} are in no order")
    if len(numbers) > 1 and header.kind is not LinkKind.DELTA:
        raise SnapshotCorrupt(run_id, Fault.HEADER, "a whole context of several versions")
    if header.by_dictionary and header.kind is LinkKind.BASE:
        raise SnapshotCorrupt(run_id, Fault.HEADER, "a base that needs a dictionary")
    if header.stored_bytes > header.payload_bytes:
        raise SnapshotCorrupt(run_id, Fault.HEADER, "a payload that is smaller unpacked")
    if max(sizes) > PAYLOAD_BYTES_MAX:
        detail = f"{max(sizes)} bytes unpacked, at most {PAYLOAD_BYTES_MAX} are allowed"
        raise SnapshotCorrupt(run_id, Fault.TOO_LARGE, detail)
    return header


def _damaged(run_id: str, data: bytes, header_bytes: int) -> SnapshotCorrupt:
    """Tells what is cut or extended from what was changed. Only for the words of the error."""
    try:
        header = _header(run_id, data[_FIXED.size : _FIXED.size + header_bytes], header_bytes)
    except SnapshotCorrupt:
        return SnapshotCorrupt(run_id, Fault.DIGEST, "its bytes are not those that were written")
    whole = _FIXED.size + header_bytes + header.stored_bytes + _DIGEST_BYTES
    if len(data) < whole:
        return SnapshotCorrupt(run_id, Fault.TRUNCATED, f"{len(data)} of {whole} bytes")
    if len(data) > whole:
        return SnapshotCorrupt(run_id, Fault.TRAILING, f"{len(data) - whole} bytes follow its end")
    return SnapshotCorrupt(run_id, Fault.DIGEST, "its bytes are not those that were written")
