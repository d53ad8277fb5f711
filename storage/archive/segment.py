"""A segment: many runs, or the events of a partition, as one object that is read in parts.

    magic "dsg1" · format version u8 · payloads · index · index length u32 · SHA-256 of the index
    · magic "1gsd"

Numbers are big-endian. Payloads are zstd frames, or the bytes themselves where those are no longer.
The index (MessagePack, `Index`) says where each is and what its digest is, so one run comes back by
three small reads: the end, the index, the payload. Each is verified before it is believed; the
digest of the whole object is in its manifest.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Final

import msgspec

from dalsegno.storage.frame import FrameError, decompress, store

MAGIC: Final = b"dsg1"
END_MAGIC: Final = b"1gsd"
FORMAT: Final = 1
PAYLOAD_BYTES_MAX: Final = 256 << 20
INDEX_BYTES_MAX: Final = 64 << 20

_HEAD: Final = struct.Struct(">4sB")
_END: Final = struct.Struct(">I32s4s")
END_BYTES: Final = _END.size
Read = Callable[[int, int], bytes]
"""`size` bytes from `first` on, exactly. Raises what its store raises."""


class Kind(IntEnum):
    """What an entry holds."""

    RUN = 0
    """Parts of one run's state: a MessagePack array of [key, value]."""
    EVENTS = 1
    """Records of the events topic, in order; see `records`."""
    TRANSITIONS = 2
    """Transitions of a partition, in order; see `records`."""
    PLAN = 3
    """A plan that runs of the segment follow, packed; named by its digest in hexadecimal."""


STATES: Final = frozenset({Kind.RUN, Kind.PLAN})
"""Kinds of what runs were, as opposed to what happened."""


class Damage(StrEnum):
    """Why a segment, or an entry of it, is not used."""

    TRUNCATED = "truncated"
    MAGIC = "magic"
    FORMAT = "format"
    DIGEST = "digest"
    INDEX = "index"
    TOO_LARGE = "too_large"
    FRAME = "frame"


class SegmentCorrupt(Exception):  # noqa: N818 - what it is
    """A segment of which nothing, or one entry, is used. `key` is the object's."""

    def __init__(self, key: str, damage: Damage, detail: str) -> None:
        super().__init__(f"segment {key!a}: {damage}: {detail}")
        self.key = key
        self.damage = damage
        self.detail = detail


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One payload. `name` is the run's id, empty for records of many runs.

    `first_offset`, `last_offset`: of the records, where the first may be of an offset without one,
    behind what is archived already; of a run, both are the position of the fold
    up to which its state is complete. `count`: records, or parts.
    """

    kind: Kind
    name: str
    first_offset: int
    last_offset: int
    count: int
    place: int
    stored_bytes: int
    payload_bytes: int
    digest: bytes


class Index(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What a segment holds. `created_at_ms`: broker time of the newest thing in it.

    `partition` of `partitions`; `transitions_to`: where in their topic the transitions of what
    follows begin.
    """

    partition: int
    partitions: int
    created_at_ms: int
    transitions_to: int
    entries: tuple[Entry, ...]

    def run(self, run_id: str) -> Entry | None:
        """The entry of a run."""
        for entry in self.entries:
            if entry.kind is Kind.RUN and entry.name == run_id:
                return entry
        return None


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Index).decode


class SegmentWriter:
    """Gathers payloads; `finish` gives the object."""

    def __init__(self, partition: int, partitions: int) -> None:
        self._partition = partition
        self._partitions = partitions
        self._parts: list[bytes] = [_HEAD.pack(MAGIC, FORMAT)]
        self._entries: list[Entry] = []
        self.size = _HEAD.size
        """Bytes so far, without the index."""

    def add(
        self, kind: Kind, name: str, payload: bytes, *, first: int, last: int, count: int
    ) -> None:
        """One payload more. `first`, `last`: offsets; see `Entry`. Raises `ValueError`."""
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ValueError(f"a payload of {len(payload)} bytes, at most {PAYLOAD_BYTES_MAX}")
        stored = store(payload).data
        self._entries.append(
            Entry(
                kind, name, first, last, count, self.size, len(stored), len(payload),
                hashlib.sha256(stored).digest(),
            )
        )  # fmt: skip
        self._parts.append(stored)
        self.size += len(stored)

    def finish(self, created_at_ms: int, transitions_to: int = 0) -> bytes:
        """The segment. Raises `ValueError` when it is empty."""
        if not self._entries:
            raise ValueError("a segment of nothing")
        index = _pack(
            Index(
                self._partition, self._partitions, created_at_ms, transitions_to,
                tuple(self._entries),
            )
        )  # fmt: skip
        end = _END.pack(len(index), hashlib.sha256(index).digest(), END_MAGIC)
        return b"".join((*self._parts, index, end))


def read_index(key: str, size: int, read: Read) -> Index:
    """The index of a segment of so many bytes. Raises `SegmentCorrupt`."""
    if size < _HEAD.size + END_BYTES:
        raise SegmentCorrupt(key, Damage.TRUNCATED, f"{size} bytes are no segment")
    length, digest, magic = _END.unpack(read(size - END_BYTES, END_BYTES))
    if magic != END_MAGIC:
        raise SegmentCorrupt(key, Damage.MAGIC, f"it ends with {magic!r}")
    head_magic, version = _HEAD.unpack(read(0, _HEAD.size))
    if head_magic != MAGIC:
        raise SegmentCorrupt(key, Damage.MAGIC, f"it begins with {head_magic!r}")
    if version != FORMAT:
        detail = f"format {version}, this code reads {FORMAT}: upgrade it"
        raise SegmentCorrupt(key, Damage.FORMAT, detail)
    begin = size - END_BYTES - length
    if length > INDEX_BYTES_MAX or begin < _HEAD.size:
        raise SegmentCorrupt(key, Damage.INDEX, f"an index of {length} bytes")
    packed = read(begin, length)
    if hashlib.sha256(packed).digest() != digest:
        raise SegmentCorrupt(key, Damage.DIGEST, "its index is not the one that was written")
    try:
        index = _unpack(packed)
    except msgspec.MsgspecError as error:
        raise SegmentCorrupt(key, Damage.INDEX, str(error)) from error
    _check(key, index, begin)
    return index


def _check(key: str, index: Index, end: int) -> None:
    place = _HEAD.size
    for entry in index.entries:
        if entry.place != place or min(entry.stored_bytes, entry.count, entry.first_offset) < 0:
            raise SegmentCorrupt(key, Damage.INDEX, "its entries do not follow each other")
        if entry.payload_bytes > PAYLOAD_BYTES_MAX or entry.stored_bytes > entry.payload_bytes:
            detail = f"an entry of {entry.payload_bytes} bytes, at most {PAYLOAD_BYTES_MAX}"
            raise SegmentCorrupt(key, Damage.TOO_LARGE, detail)
        place += entry.stored_bytes
    if place != end:
        raise SegmentCorrupt(
            key, Damage.INDEX, f"its entries end at {place}, its index begins at {end}"
        )


def read_entry(key: str, entry: Entry, read: Read) -> bytes:
    """The payload of an entry, verified. Raises `SegmentCorrupt`."""
    stored = read(entry.place, entry.stored_bytes)
    if hashlib.sha256(stored).digest() != entry.digest:
        detail = f"{entry.kind.name.lower()} {entry.name!a} is not what was written"
        raise SegmentCorrupt(key, Damage.DIGEST, detail)
    if entry.stored_bytes == entry.payload_bytes:
        return stored
    try:
        return decompress(stored, entry.payload_bytes)
    except FrameError as error:
        raise SegmentCorrupt(key, Damage.FRAME, str(error)) from error
