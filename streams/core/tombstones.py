"""Runs that were erased: what is kept of each, so that nothing brings it back.

A run's id may itself say who somebody is. So a tombstone has its SHA-256 and not the id: whoever
knows an id can ask about it, and nothing in the state, the transitions or a receipt names one.
Tombstones stay for good; each takes some 200 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from dalsegno.schemas.control import ErasedFrom, ErasureConfirmed
from dalsegno.streams.core.moment import APPLIED, Ruling, duplicate, refused
from dalsegno.streams.core.record import Blank
from dalsegno.streams.core.state_codec import StateCorrupt

# With the run's digest behind it.
TOMBSTONE_KEY: Final = b"x"
_NAME: Final = "erased:"

_encode = msgspec.msgpack.Encoder().encode


class Tombstone(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """What is kept of an erased run.

    `offset`: of the request, which came at `erased_ms` (log time). `last_ms`: when the newest
    record about the run came, `late` of them after the request. `was`: its state then, empty when
    nothing was known of it. `confirmed`: what has left the stores beside the log, as the owner
    said in number `number`; `gone_by_ms`: when the logs will have forgotten it, as promised then
    (0: not said, or never).
    """

    erasure_id: str
    requested_by: str
    reason: str
    offset: int
    erased_ms: int
    last_ms: int
    late: int = 0
    was: str = ""
    number: int = -1
    confirmed: tuple[ErasedFrom, ...] = ()
    gone_by_ms: int = 0


_decode = msgspec.msgpack.Decoder(Tombstone).decode


def digest_of_id(run_id: str) -> bytes:
    """What stands for an erased run, 32 bytes."""
    return sha256(run_id.encode("utf-8", "surrogatepass")).digest()


def erased_name(run_id: str) -> str:
    """What the transitions call an erased run."""
    return name_of(digest_of_id(run_id))


def name_of(digest: bytes) -> str:
    """The same, by the digest of the id."""
    return _NAME + digest.hex()


def is_erased_name(name: str) -> bool:
    """Whether transitions use such a name for an erased run."""
    return name.startswith(_NAME)


class Tombstones:
    """The tombstones of a partition, by the digest of the run's id."""

    def __init__(self) -> None:
        self._stones: dict[bytes, Tombstone] = {}
        self._dirty: dict[bytes, None] = {}
        self._ordered: list[tuple[bytes, Tombstone]] | None = None

    def __len__(self) -> int:
        return len(self._stones)

    def of(self, run_id: str) -> Tombstone | None:
        """That of a run, if it was erased."""
        return self._stones.get(digest_of_id(run_id)) if self._stones else None

    def all(self) -> Sequence[tuple[bytes, Tombstone]]:
        """All of them, in the order of the requests. They are many, asked for often, and change
        rarely.
        """
        if self._ordered is None:
            self._ordered = sorted(self._stones.items(), key=lambda each: each[1].offset)
        return self._ordered

    def put(self, digest: bytes, stone: Tombstone) -> None:
        """The run is erased, or more is known of its erasure."""
        self._stones[digest] = stone
        self._dirty[digest] = None
        self._ordered = None

    def late(self, digest: bytes, at_ms: int) -> None:
        """One more record about the run has come."""
        stone = self._stones[digest]
        later = msgspec.structs.replace(
            stone, late=stone.late + 1, last_ms=max(stone.last_ms, at_ms)
        )
        self.put(digest, later)

    def blank(self, event: Blank, at_ms: int) -> None:
        """What an archive kept of an erased run: the request makes the tombstone again, what came
        after it counts as late.
        """
        if event.tombstone:
            self.put(event.digest, unpack_tombstone(event.tombstone))
        elif event.digest in self._stones:
            self.late(event.digest, at_ms)

    def confirm(self, event: ErasureConfirmed) -> Ruling:
        """The owner says what has left the stores beside the log."""
        stone = self._stones.get(event.run_digest)
        if stone is None:
            return refused("not_erased", "no run of this digest was erased")
        if event.number <= stone.number:
            return duplicate("older_number")
        self.put(
            event.run_digest,
            msgspec.structs.replace(
                stone, number=event.number, confirmed=event.stores, gone_by_ms=event.gone_by_ms
            ),
        )
        return APPLIED

    def take_dirty(self) -> list[tuple[bytes, bytes]]:
        """Parts that changed since the last call."""
        dirty, self._dirty = self._dirty, {}
        return [(TOMBSTONE_KEY + digest, _encode(self._stones[digest])) for digest in dirty]

    def parts(self) -> dict[bytes, bytes]:
        """All parts."""
        return {TOMBSTONE_KEY + digest: _encode(stone) for digest, stone in self._stones.items()}

    def load(self, parts: Iterable[tuple[bytes, bytes]]) -> None:
        """Takes parts back; keys without their first byte. Raises `StateCorrupt`."""
        self._ordered = None
        for digest, data in sorted(parts):
            try:
                self._stones[digest] = _decode(data)
            except msgspec.MsgspecError as error:
                raise StateCorrupt(f"the tombstone {digest.hex()}: {error}") from error


def unpack_tombstone(data: bytes) -> Tombstone:
    """A tombstone from its part. Raises `StateCorrupt`."""
    try:
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise StateCorrupt(f"a tombstone: {error}") from error


def pack_tombstone(stone: Tombstone) -> bytes:
    """The part of a tombstone."""
    return _encode(stone)
