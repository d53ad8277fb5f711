"""Takes erased runs out of a segment: their records stay as offset, time, kind and outcome.

What a fold needs to come to the same counts and the same tombstones stays; key, value and headers
go. A record that came after the run was erased keeps the run's digest, the request its tombstone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from dalsegno.schemas import codec
from dalsegno.schemas.blob import references
from dalsegno.schemas.control import ArchiveConfirmed
from dalsegno.schemas.errors import DecodeError
from dalsegno.schemas.outputs import Outcome, Transition
from dalsegno.storage.archive.records import Kept, pack_records, unpack_records
from dalsegno.storage.archive.segment import (
    Entry,
    Index,
    Kind,
    SegmentWriter,
    read_entry,
    read_index,
)
from dalsegno.streams.core.record import Blank, Record
from dalsegno.streams.core.run_table import RunInput
from dalsegno.streams.core.tombstones import (
    Tombstone,
    digest_of_id,
    pack_tombstone,
    unpack_tombstone,
)
from dalsegno.streams.engine.raw import RawEvent

_DIGEST: Final = b"erased"
_TOMBSTONE: Final = b"tombstone"
_EVENT: Final = b"event"
_REQUEST: Final = "ErasureRequested"
_UNREADABLE: Final = "unreadable"

Stones = Mapping[bytes, Tombstone]


class Sighting(NamedTuple):
    """What a segment has of erased runs. `outcomes`: of their events, by offset, as far as its
    transitions say. `blobs`: digests of the blobs that their records name.
    """

    records: int
    states: int
    outcomes: dict[int, str]
    blobs: set[bytes]


def look(data: bytes, stones: Stones) -> Sighting:
    """Look for erased runs in a segment. Raises `SegmentCorrupt`, `RecordsCorrupt`."""
    records, states = 0, 0
    outcomes: dict[int, str] = {}
    blobs: set[bytes] = set()
    index, read = _opened(data)
    for entry in index.entries:
        if entry.kind not in _OF_RECORDS:
            states += _named(entry, stones)
            continue
        for kept in _records(entry, read):
            if _stone_of(kept, stones) is None:
                records += _without(kept, stones) is not None
                continue
            records += 1
            blobs |= references(kept.value or b"")
            if entry.kind is Kind.TRANSITIONS:
                outcomes.update(_outcome(kept))
    return Sighting(records, states, outcomes, blobs)


def blank(data: bytes, stones: Stones, outcomes: Mapping[int, str]) -> bytes | None:
    """The segment without them; None when nothing is left. Raises as `look`."""
    index, read = _opened(data)
    writer = SegmentWriter(index.partition, index.partitions)
    left = False
    for entry in index.entries:
        payload = read_entry("(segment)", entry, read)
        if entry.kind in _OF_RECORDS:
            found = unpack_records(payload, entry.count, entry.first_offset, entry.last_offset)
            payload = pack_records([_blanked(entry.kind, each, stones, outcomes) for each in found])
        elif _named(entry, stones):
            continue
        # What only serves states that have gone is nothing to keep a segment for.
        left = left or entry.kind in _OF_RECORDS or entry.kind is Kind.RUN
        writer.add(
            entry.kind, entry.name, payload,
            first=entry.first_offset, last=entry.last_offset, count=entry.count,
        )  # fmt: skip
    return writer.finish(index.created_at_ms, index.transitions_to) if left else None


def record_of(kept: Kept) -> RawEvent | Record:
    """A record of the archive as a fold reads it: one that was blanked is read by nobody else."""
    if kept.value is None and kept.kind:
        headers = dict(kept.headers)
        if _EVENT in headers:
            event = codec.decode(headers[_EVENT])
            assert isinstance(event, ArchiveConfirmed), "no other kind is kept so"
            return Record(kept.offset, kept.at_ms, b"", b"", event)
        told = headers.get(_TOMBSTONE)
        event = Blank(
            kept.kind,
            Outcome(kept.outcome),
            headers.get(_DIGEST, b""),
            b"" if told is None else pack_tombstone(unpack_tombstone(told)),
        )
        return Record(kept.offset, kept.at_ms, b"", b"", event)
    names = tuple((name.decode("utf-8", "surrogateescape"), held) for name, held in kept.headers)
    return RawEvent(kept.offset, kept.at_ms, kept.key, kept.value, names)


_OF_RECORDS: Final = frozenset({Kind.EVENTS, Kind.TRANSITIONS})


class _Read:
    """Ranges of a segment in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __call__(self, first: int, size: int) -> bytes:
        return self._data[first : first + size]


def _opened(data: bytes) -> tuple[Index, _Read]:
    read = _Read(data)
    return read_index("(segment)", len(data), read), read


def _records(entry: Entry, read: _Read) -> Iterator[Kept]:
    payload = read_entry("(segment)", entry, read)
    yield from unpack_records(payload, entry.count, entry.first_offset, entry.last_offset)


def _named(entry: Entry, stones: Stones) -> bool:
    return sha256(entry.name.encode()).digest() in stones


def _stone_of(kept: Kept, stones: Stones) -> tuple[bytes, Tombstone] | None:
    if not kept.key:
        return None
    digest = sha256(kept.key).digest()
    stone = stones.get(digest)
    return None if stone is None else (digest, stone)


def _outcome(kept: Kept) -> Iterator[tuple[int, str]]:
    transition = codec.decode_if(Transition, kept.value)
    if transition is not None and not transition.cause.startswith("timer:"):
        put_aside = transition.cause == RunInput.RAISED
        yield (
            transition.cause_offset,
            str(Outcome.DEAD_LETTERED if put_aside else transition.outcome),
        )


def _blanked(kind: Kind, kept: Kept, stones: Stones, outcomes: Mapping[int, str]) -> Kept:
    found = _stone_of(kept, stones)
    if found is None:
        return _without(kept, stones) or kept
    digest, stone = found
    if kind is Kind.TRANSITIONS:
        return Kept(kept.offset, kept.at_ms, None, None, (), Transition.__name__, "")
    name = codec.kind_of(kept.value or b"") or _UNREADABLE
    headers: tuple[tuple[bytes, bytes], ...] = ()
    outcome = outcomes.get(kept.offset) or _untold(kept)
    if kept.offset == stone.offset:
        outcome = str(Outcome.APPLIED)
        headers = ((_DIGEST, digest), (_TOMBSTONE, pack_tombstone(_as_it_was(stone))))
    elif kept.offset > stone.offset and outcome != Outcome.DEAD_LETTERED:
        # A repeat of the request is a duplicate, everything else that is an event was refused.
        outcome = str(Outcome.DUPLICATE if name == _REQUEST else Outcome.REFUSED)
        headers = ((_DIGEST, digest),)
    return Kept(kept.offset, kept.at_ms, None, None, headers, name, outcome)


def _without(kept: Kept, stones: Stones) -> Kept | None:
    """The word that states are archived, without the runs of it that were erased; None if it names
    none. It loses its MAC by that: from here on the segment's digest vouches for it.
    """
    event = _confirmed(kept)
    if event is None or len(event.run_ids) != len(event.run_digests):
        return None
    pairs = [
        pair
        for pair in zip(event.run_ids, event.run_digests, strict=True)
        if digest_of_id(pair[0]) not in stones
    ]
    if len(pairs) == len(event.run_ids):
        return None
    if not pairs:
        applied = str(Outcome.APPLIED)
        return Kept(kept.offset, kept.at_ms, None, None, (), ArchiveConfirmed.__name__, applied)
    less = msgspec.structs.replace(
        event, run_ids=tuple(i for i, _ in pairs), run_digests=tuple(d for _, d in pairs)
    )
    headers = ((_EVENT, codec.encode(less)),)
    return Kept(kept.offset, kept.at_ms, None, None, headers, ArchiveConfirmed.__name__, "")


def _confirmed(kept: Kept) -> ArchiveConfirmed | None:
    """That word as it was appended, or as an earlier erasure has left it."""
    told = kept.value or b""
    if kept.value is None and kept.kind == ArchiveConfirmed.__name__:
        told = dict(kept.headers).get(_EVENT, b"")
    if codec.kind_of(told) != ArchiveConfirmed.__name__:
        return None
    return codec.decode_if(ArchiveConfirmed, told)


def _untold(kept: Kept) -> str:
    """The outcome of an event that no transition names: a repeat, or no event at all."""
    try:
        codec.decode(kept.value or b"")
    except DecodeError:
        return str(Outcome.DEAD_LETTERED)
    return str(Outcome.DUPLICATE)


def _as_it_was(stone: Tombstone) -> Tombstone:
    """The tombstone as the request made it: what came later, later records say again."""
    return msgspec.structs.replace(
        stone, late=0, last_ms=stone.erased_ms, number=-1, confirmed=(), gone_by_ms=0
    )
